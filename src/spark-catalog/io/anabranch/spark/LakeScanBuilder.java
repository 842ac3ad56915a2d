package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what a query needs of a table: columns, filters, aggregates, a limit and an order. */
final class LakeScanBuilder
    implements ScanBuilder,
        SupportsPushDownV2Filters,
        SupportsPushDownRequiredColumns,
        SupportsPushDownAggregates,
        SupportsPushDownLimit,
        SupportsPushDownTopN {
  /** How many times larger than what Spark broadcasts a table may be: a query needs only some columns of it. */
  private static final long SMALL_TABLE = 4;

  private final LakeTable table;
  private StructType columns;
  private final List<String> where = new ArrayList<>();
  private final List<Predicate> pushed = new ArrayList<>();
  private boolean isExact = true;
  private PushedAggregates aggregates;
  private PushedOrder order;
  private Integer limit;
  private final CaseInsensitiveStringMap options;

  LakeScanBuilder(LakeTable table, CaseInsensitiveStringMap options) {
    this.table = table;
    this.options = options;
    columns = table.structType();
    if (table.filter != null) {
      where.add(table.filter);
    }
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    if (predicates.length == 0) {
      return predicates;
    }
    JsonNode answers = askGateway(table, predicates);
    boolean isSmall = table.bytes <= SMALL_TABLE * SQLConf.get().autoBroadcastJoinThreshold();
    List<Predicate> left = new ArrayList<>();
    for (int n = 0; n < predicates.length; n++) {
      JsonNode answer = answers.get(n);
      if (!answer.isNull()) {
        where.add(answer.get("sql").asText());
        pushed.add(predicates[n]);
      }
      if (answer.isNull() || !answer.get("exact").asBoolean() || (isSmall && isSelective(predicates[n]))) {
        left.add(predicates[n]);
      }
    }
    isExact = left.isEmpty();
    return left.toArray(new Predicate[0]);
  }

  /**
   * Whether a join with the rows that are left may be worth a filter of its other side. Spark sends one only if it sees
   * a filter here, and only from a side that it can broadcast. So the filters of small tables stay in Spark's plan,
   * too, where they cost little; with the filters of large tables, aggregates, limits and orders are pushed as well.
   */
  private static boolean isSelective(Predicate predicate) {
    return !"IS_NOT_NULL".equals(predicate.name());
  }

  /** For each predicate its SQL for Lance, or null. */
  static JsonNode askGateway(LakeTable table, Predicate[] predicates) {
    ObjectNode request = Gateway.request(table.settings, "push_filters");
    request.set("version_ref", table.versionRef);
    request.set("filters", ExpressionJson.of(predicates));
    return Gateway.call(table.settings, request).get("pushed");
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
  public boolean pushAggregation(Aggregation aggregation) {
    if (isExact) {
      aggregates = PushedAggregates.of(aggregation, table.structType());
    }
    return aggregates != null;
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
  public boolean pushTopN(SortOrder[] orders, int count) {
    if (isExact) {
      order = PushedOrder.of(orders, table.structType());
    }
    if (order == null) {
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
    if (aggregates != null && where.isEmpty() && table.bases.isEmpty() && aggregates.onlyCountsRows()) {
      return new CountScan(table, aggregates);
    }
    StructType read = aggregates == null ? columns : aggregates.columns();
    return new LakeScan(table, options, new Pushed(read, String.join(" AND ", where), limit, order, aggregates));
  }
}
