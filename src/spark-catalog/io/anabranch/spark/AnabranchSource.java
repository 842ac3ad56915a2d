package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * {@code format("anabranch")} where the jar is there. Rows of a table are read by the scan of the catalog. Everything
 * else is left to the source of the same name in Python: writes, changes and streams. Spark prefers a source in Java to
 * one in Python, and makes one of these objects for each read and write.
 */
public final class AnabranchSource implements TableProvider, DataSourceRegister {
  private static final String NAME = "anabranch";
  /** Settings that {@code ab.spark_session(repo)} makes: the storage options of one repository each, as JSON. */
  private static final String LENT = "anabranch.secret.";

  private final PythonDataSourceV2 python = new PythonDataSourceV2();
  /** The table that is read, or null if the source in Python has to read it. */
  private Table table;

  public AnabranchSource() {
    python.setShortName(NAME);
  }

  @Override
  public String shortName() {
    return NAME;
  }

  /** Spark calls this before {@link #getTable}, but for writes and for reads with a schema. */
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    SparkVersion.check();
    refuseSessionCatalog(options);
    ObjectNode request = Gateway.request(Settings.ofSource(null, Map.of()), "load_source");
    request.set("options", Json.of(options));
    request.set("lent", lentOptions());
    JsonNode loaded = Gateway.call(Settings.ofSource(null, Map.of()), request);
    if (!loaded.get("reads_rows").asBoolean()) {
      return python.inferSchema(options);
    }
    Settings settings = Settings.ofSource(loaded.get("repo").asText(), Json.map(loaded.get("storage_options")));
    SourceTable found = new SourceTable(settings, loaded);
    table = found;
    return found.structType();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    refuseSessionCatalog(properties);
    return table == null ? python.getTable(schema, partitioning, properties) : table;
  }

  /** The source in Python takes the columns of rows to write, and refuses a schema for a read. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  /** Refuse CREATE TABLE ... USING anabranch in Spark's own catalog, which is the only one to name an owner. */
  private static void refuseSessionCatalog(Map<String, String> properties) {
    if (properties.containsKey(TableCatalog.PROP_OWNER)) {
      throw new AnabranchException("InvalidInputError", "a table in Spark's own catalog cannot be USING anabranch",
          "create it in the catalog of a repository, as in CREATE TABLE lake.bucket.table (...), or make a view of"
              + " a table: CREATE TEMPORARY VIEW v USING anabranch OPTIONS (repo '...', table 'bucket.table')")
          .unchecked();
    }
  }

  /** The storage options that were lent to this session, by the URI of their repository. */
  static ObjectNode lentOptions() {
    ObjectNode lent = Json.object();
    CollectionConverters.asJava(SQLConf.get().getAllConfs()).forEach((name, value) -> {
      if (name.startsWith(LENT)) {
        JsonNode found = Json.parse(value);
        lent.set(found.get("repo").asText(), found.get("storage_options"));
      }
    });
    return lent;
  }
}
