package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * The tables of one repository in Spark SQL: {@code lake.bucket.table}, {@code lake.bucket.table.branch_dev}, VERSION
 * AS OF and so on. The catalog does not read Lance itself: it passes requests on to the gateway.
 */
public final class AnabranchCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog {
  private static final String[] SYSTEM = {"system"};

  private String name;
  private Settings settings;
  private final QueryCommits queryCommits = new QueryCommits();
  /** Buckets that CREATE NAMESPACE named. A bucket exists in the repository from its first table on. */
  private final Set<String> newBuckets = new HashSet<>();

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    SparkVersion.check();
    this.name = name;
    settings = new Settings(name, options);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return EnumSet.of(
        TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE, TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT);
  }

  // Tables

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    List<Identifier> found = new ArrayList<>();
    if (namespace.length == 1) {
      for (String key : listKeys()) {
        String[] parts = key.split("\\.", 2);
        if (parts[0].equals(namespace[0])) {
          found.add(Identifier.of(namespace, parts[1]));
        }
      }
    }
    if (found.isEmpty() && namespace.length > 0 && !namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return found.toArray(new Identifier[0]);
  }

  @Override
  public Table loadTable(Identifier identifier) throws NoSuchTableException {
    return load(identifier, request("load_table", identifier));
  }

  @Override
  public Table loadTable(Identifier identifier, String version) throws NoSuchTableException {
    return load(identifier, request("load_table", identifier).put("version", version));
  }

  @Override
  public Table loadTable(Identifier identifier, long microseconds) throws NoSuchTableException {
    return load(identifier, request("load_table", identifier).put("time", microseconds));
  }

  @Override
  public Table createTable(Identifier identifier, TableInfo info) throws TableAlreadyExistsException {
    ObjectNode request = request("create_table", identifier);
    request.set("definition", TableInfoJson.of(info));
    request.put("message", Statement.current("CREATE TABLE " + identifier));
    try {
      Gateway.tryCall(settings, request);
      return loadTable(identifier);
    } catch (AnabranchException e) {
      if (e.kind().equals("TableExistsError")) {
        throw new TableAlreadyExistsException(identifier);
      }
      throw e.unchecked();
    } catch (NoSuchTableException e) {
      throw new IllegalStateException(e);
    }
  }

  // CREATE TABLE AS SELECT and REPLACE TABLE: one commit with all rows

  @Override
  public StagedTable stageCreate(Identifier identifier, TableInfo info) throws TableAlreadyExistsException {
    if (tableExists(identifier)) {
      throw new TableAlreadyExistsException(identifier);
    }
    return stage(identifier, info, "create");
  }

  @Override
  public StagedTable stageReplace(Identifier identifier, TableInfo info) throws NoSuchTableException {
    if (!tableExists(identifier)) {
      throw new NoSuchTableException(identifier);
    }
    return stage(identifier, info, "replace");
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier identifier, TableInfo info) {
    return stage(identifier, info, "create_or_replace");
  }

  private StagedTable stage(Identifier identifier, TableInfo info, String mode) {
    ObjectNode request = request("begin_write", identifier).put("mode", mode);
    request.set("definition", TableInfoJson.of(info));
    request.put("message", Statement.current("CREATE TABLE " + identifier));
    return new StagedLakeTable(name + "." + identifier, settings, request, info);
  }

  @Override
  public Table createTableLike(Identifier identifier, TableInfo info, Table source)
      throws TableAlreadyExistsException {
    return createTable(identifier, info);
  }

  @Override
  public Table alterTable(Identifier identifier, TableChange... changes) throws NoSuchTableException {
    ObjectNode request = request("alter_table", identifier);
    request.set("changes", TableChangeJson.of(changes));
    request.put("message", Statement.current("ALTER TABLE " + identifier));
    Gateway.call(settings, request);
    return loadTable(identifier);
  }

  @Override
  public boolean dropTable(Identifier identifier) {
    ObjectNode request = request("drop_table", identifier);
    request.put("message", Statement.current("DROP TABLE " + identifier));
    try {
      Gateway.tryCall(settings, request);
      return true;
    } catch (AnabranchException e) {
      if (e.kind().equals("TableNotFoundError")) {
        return false;
      }
      throw e.unchecked();
    }
  }

  @Override
  public void renameTable(Identifier old, Identifier renamed) throws TableAlreadyExistsException {
    ObjectNode request = request("rename_table", old).put("catalog", name);
    request.set("new_parts", Json.array(partsOf(renamed)));
    request.put("message", Statement.current("ALTER TABLE " + old + " RENAME TO " + renamed));
    try {
      Gateway.tryCall(settings, request);
    } catch (AnabranchException e) {
      if (e.kind().equals("TableExistsError")) {
        throw new TableAlreadyExistsException(renamed);
      }
      throw e.unchecked();
    }
  }

  // Buckets, which are Spark's namespaces

  @Override
  public String[][] listNamespaces() {
    Set<String> buckets = new TreeSet<>(newBuckets);
    for (String key : listKeys()) {
      buckets.add(key.split("\\.", 2)[0]);
    }
    return buckets.stream().map(bucket -> new String[] {bucket}).toArray(String[][]::new);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 0) {
      return listNamespaces();
    }
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return new String[0][];
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 1
        && Arrays.stream(listNamespaces()).anyMatch(bucket -> bucket[0].equals(namespace[0]));
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return Map.of();
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    if (namespace.length != 1) {
      throw new IllegalArgumentException("a bucket has a name of one part, not " + String.join(".", namespace));
    }
    newBuckets.add(namespace[0]);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw new UnsupportedOperationException("a bucket has no properties: set those of its tables");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) throws NoSuchNamespaceException {
    if (namespace.length == 1 && listTables(namespace).length == 0) {
      return newBuckets.remove(namespace[0]);
    }
    throw new UnsupportedOperationException(
        "bucket " + String.join(".", namespace) + " has tables: drop them first, each is one commit");
  }

  // Procedures

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    if (namespace.length > 0 && !Arrays.equals(namespace, SYSTEM)) {
      return new Identifier[0];
    }
    return LakeProcedure.list(settings).stream()
        .map(procedure -> Identifier.of(SYSTEM, procedure.name()))
        .toArray(Identifier[]::new);
  }

  @Override
  public UnboundProcedure loadProcedure(Identifier identifier) {
    List<LakeProcedure> all = LakeProcedure.list(settings);
    for (LakeProcedure procedure : all) {
      if (Arrays.equals(identifier.namespace(), SYSTEM) && procedure.name().equalsIgnoreCase(identifier.name())) {
        return procedure;
      }
    }
    throw new AnabranchException("InvalidInputError", "there is no procedure '" + identifier + "'",
        "the procedures of system are "
            + all.stream().map(LakeProcedure::name).collect(Collectors.joining(", "))).unchecked();
  }

  // Requests

  private Table load(Identifier identifier, ObjectNode request) throws NoSuchTableException {
    request.set("commits", Json.of(queryCommits.current()));
    try {
      JsonNode loaded = Gateway.tryCall(settings, request);
      if (loaded.get("is_pinned").asBoolean()) {
        queryCommits.current().put(loaded.get("ref").asText(), loaded.get("commit").asText());
      }
      if (loaded.has("metadata")) {
        return new MetadataTable(settings, name + "." + identifier, loaded);
      }
      return new LakeTable(settings, name + "." + identifier, loaded);
    } catch (AnabranchException e) {
      if (e.kind().equals("TableNotFoundError")) {
        throw new NoSuchTableException(identifier);
      }
      throw e.unchecked();
    }
  }

  private String[] listKeys() {
    ObjectNode request = Gateway.request(settings, "list_tables").put("branch", settings.branch());
    return Json.strings(Gateway.call(settings, request).get("tables"));
  }

  private ObjectNode request(String operation, Identifier identifier) {
    ObjectNode request = Gateway.request(settings, operation);
    request.set("parts", Json.array(partsOf(identifier)));
    request.set("namespace", Json.array(currentNamespace()));
    request.put("branch", settings.branch());
    return request;
  }

  /** The bucket that USE named, if this is the current catalog: {@code orders.branch_dev} may lack it. */
  private String[] currentNamespace() {
    Option<SparkSession> session = SparkSession.getActiveSession();
    if (session.isEmpty()) {
      return new String[0];
    }
    CatalogManager catalogs = session.get().sessionState().catalogManager();
    return catalogs.currentCatalog() == this ? catalogs.currentNamespace() : new String[0];
  }

  private static String[] partsOf(Identifier identifier) {
    String[] parts = Arrays.copyOf(identifier.namespace(), identifier.namespace().length + 1);
    parts[parts.length - 1] = identifier.name();
    return parts;
  }
}
