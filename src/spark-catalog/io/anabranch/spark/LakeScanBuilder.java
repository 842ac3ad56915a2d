package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Collects what a query needs of a table: columns, filters and a limit. */
final class LakeScanBuilder
    implements ScanBuilder, SupportsPushDownV2Filters, SupportsPushDownRequiredColumns, SupportsPushDownLimit {
  private final LakeTable table;
  private StructType columns;
  private final List<String> where = new ArrayList<>();
  private final List<Predicate> pushed = new ArrayList<>();
  private boolean isExact = true;
  private Integer limit;

  LakeScanBuilder(LakeTable table) {
    this.table = table;
    columns = table.structType();
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    if (predicates.length == 0) {
      return predicates;
    }
    ObjectNode request = Gateway.request(table.settings, "push_filters");
    request.set("pin", table.pin);
    request.set("filters", ExpressionJson.of(predicates));
    JsonNode answers = Gateway.call(table.settings, request).get("pushed");
    List<Predicate> left = new ArrayList<>();
    for (int n = 0; n < predicates.length; n++) {
      JsonNode answer = answers.get(n);
      if (!answer.isNull()) {
        where.add(answer.get("sql").asText());
        pushed.add(predicates[n]);
      }
      if (answer.isNull() || !answer.get("exact").asBoolean()) {
        left.add(predicates[n]);
      }
    }
    isExact = left.isEmpty();
    return left.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.toArray(new Predicate[0]);
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  @Override
  public boolean pushLimit(int count) {
    if (!isExact) {
      return false;
    }
    limit = count;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true; // each part stops after that many rows; Spark stops after that many in all
  }

  @Override
  public Scan build() {
    return new LakeScan(table, columns, String.join(" AND ", where), limit);
  }
}
