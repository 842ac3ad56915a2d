package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One table, pinned to the commit that it was loaded from. */
class LakeTable
    implements Table,
        SupportsRead,
        SupportsWrite,
        SupportsDeleteV2,
        SupportsRowLevelOperations,
        SupportsMetadataColumns {
  /** The address of a row in the version that is read. */
  static final String ROW_ADDRESS = "_rowaddr";
  /** The id of a row, which stays the same when the row is updated or moved. */
  static final String ROW_ID = "_rowid";

  final Settings settings;
  final String key;
  /** The branch to write to, or null for a state that never changes. */
  final String branch;
  /** The version that is read, as the gateway wrote it. */
  final JsonNode versionRef;
  final long rows;
  final long bytes;
  final String[] primaryKey;
  /** A predicate that all rows that are read meet, or null; and the storage locations of their files, if chosen. */
  final String filter;
  final JsonNode bases;
  private final String name;
  private final String commit;
  private final StructType schema;
  private final JsonNode properties;

  LakeTable(Settings settings, String name, JsonNode loaded) {
    this.settings = settings;
    this.name = name;
    key = loaded.get("key").asText();
    branch = loaded.get("branch").isNull() ? null : loaded.get("branch").asText();
    commit = loaded.get("commit").asText();
    versionRef = loaded.get("version_ref");
    rows = loaded.get("rows").asLong();
    bytes = loaded.get("bytes").asLong();
    primaryKey = Json.strings(loaded.get("primary_key"));
    properties = loaded.get("properties");
    filter = loaded.hasNonNull("filter") ? loaded.get("filter").asText() : null;
    bases = loaded.path("bases");
    schema = withoutNullKeys((StructType) DataType.fromJson(loaded.get("schema").asText()), primaryKey);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Column[] columns() {
    return CatalogV2Util.structTypeToV2Columns(schema, false);
  }

  StructType structType() {
    return schema;
  }

  @Override
  public Map<String, String> properties() {
    return Json.map(properties);
  }

  @Override
  public Constraint[] constraints() {
    if (primaryKey.length == 0) {
      return new Constraint[0];
    }
    // Not enforced by Spark, and true all the same: the repository refuses rows that break it.
    NamedReference[] columns = Arrays.stream(primaryKey).map(Expressions::column).toArray(NamedReference[]::new);
    return new Constraint[] {Constraint.primaryKey("primary_key", columns).enforced(false).rely(true).build()};
  }

  @Override
  public Set<TableCapability> capabilities() {
    // Past states have them too, so that request() can report why they cannot be changed. Spark would not.
    return EnumSet.of(
        TableCapability.BATCH_READ,
        TableCapability.MICRO_BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE,
        TableCapability.OVERWRITE_BY_FILTER);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new LakeScanBuilder(this, options);
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return new MetadataColumn[] {new RowColumn(ROW_ADDRESS), new RowColumn(ROW_ID)};
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new LakeWriteBuilder(this, info);
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return () -> new RowLevelChange(this, info);
  }

  /** Whether a DELETE needs no job, because Lance can decide alone which rows go. */
  @Override
  public boolean canDeleteWhere(Predicate[] predicates) {
    ObjectNode request = request("delete_where").put("dry_run", true);
    request.set("filters", ExpressionJson.of(predicates));
    return Gateway.call(settings, request).get("can_delete").asBoolean();
  }

  @Override
  public void deleteWhere(Predicate[] predicates) {
    ObjectNode request = request("delete_where").put("message", Statement.current("DELETE FROM " + key));
    request.set("filters", ExpressionJson.of(predicates));
    Gateway.call(settings, request);
  }

  /** The options of a write that concern the write, and not the table. */
  CaseInsensitiveStringMap writeOptions(CaseInsensitiveStringMap given) {
    return given;
  }

  /** The new rows of each commit to the branch. */
  MicroBatchStream stream(CaseInsensitiveStringMap options, StructType columns) {
    ObjectNode followed = Json.object().put("kind", "changes").put("key", key).put("commit", commit);
    followed.put("branch", branch);
    String rows = options.getBoolean("skipChanges", false) ? "skip" : "new";
    return new ChangeStream(settings, followed, options, columns, rows);
  }

  /** A request about this table, on the branch that it was loaded from. */
  ObjectNode request(String operation) {
    if (branch == null) {
      throw new AnabranchException("InvalidInputError", "'" + name + "' is read-only",
          "name the table on a branch, as in " + key + ".branch_main").unchecked();
    }
    String[] parts = key.split("\\.", 2);
    ObjectNode request = Gateway.request(settings, operation).put("branch", branch);
    request.set("parts", Json.array(parts[0], parts[1]));
    return request;
  }

  /** A column that every table has. */
  private record RowColumn(String name) implements MetadataColumn {
    @Override
    public DataType dataType() {
      return DataTypes.LongType;
    }

    @Override
    public boolean isNullable() {
      return false;
    }
  }

  /** The columns of a primary key are never null, even if the table's schema allows null. */
  private static StructType withoutNullKeys(StructType schema, String[] primaryKey) {
    List<String> keys = Arrays.asList(primaryKey);
    StructField[] fields = schema.fields().clone();
    for (int n = 0; n < fields.length; n++) {
      StructField field = fields[n];
      if (keys.contains(field.name())) {
        fields[n] = new StructField(field.name(), field.dataType(), false, field.metadata());
      }
    }
    return new StructType(fields);
  }
}
