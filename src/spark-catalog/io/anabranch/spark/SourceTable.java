package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table that options name, as in {@code format("anabranch")}. It is read as the tables of a catalog are. A temporary
 * view of it takes INSERT if the options name a branch and all its columns and rows.
 */
final class SourceTable extends LakeTable {
  /** Options that name the table; Spark passes them on to a write. */
  private static final Set<String> NAMING = Set.of("repo", "path", "table", "ref");
  private static final String SECRET = "secret.";

  SourceTable(Settings settings, JsonNode loaded) {
    super(settings, loaded.get("key").asText(), loaded);
  }

  @Override
  CaseInsensitiveStringMap writeOptions(CaseInsensitiveStringMap given) {
    Map<String, String> left = new HashMap<>(given);
    left.keySet().removeIf(option -> NAMING.contains(option) || option.startsWith(SECRET));
    return new CaseInsensitiveStringMap(left);
  }

  @Override
  MicroBatchStream stream(CaseInsensitiveStringMap options, StructType columns) {
    throw new AnabranchException("InvalidInputError", "the stream does not name its branch",
        "give the option 'branch', with 'since' to begin after a commit, and no schema").unchecked();
  }

  @Override
  public boolean canDeleteWhere(Predicate[] predicates) {
    throw needsName();
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    throw needsName();
  }

  private RuntimeException needsName() {
    return new AnabranchException("InvalidInputError", "a table that options name takes no UPDATE, DELETE or MERGE",
        "name it in a catalog, as in lake." + key + ".branch_" + (branch == null ? "main" : branch)).unchecked();
  }
}
