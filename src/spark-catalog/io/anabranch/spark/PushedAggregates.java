package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Counts, minima and maxima without groups. Each part of a scan answers one row, and Spark combines them. */
record PushedAggregates(String json, String description, StructType columns) {

  /** The aggregates, or null if one of them cannot be pushed: Spark pushes all of them or none. */
  static PushedAggregates of(Aggregation aggregation, StructType schema) {
    if (aggregation.groupByExpressions().length > 0) {
      return null;
    }
    ArrayNode json = Json.array();
    StructType columns = new StructType();
    List<String> description = new ArrayList<>();
    for (AggregateFunc function : aggregation.aggregateExpressions()) {
      DataType type = add(json, function, schema);
      if (type == null) {
        return null;
      }
      columns = columns.add("aggregate" + json.size(), type, true);
      description.add(function.toString());
    }
    return new PushedAggregates(json.toString(), String.join(", ", description), columns);
  }

  /** Whether the number of rows is all that is asked for, which the manifest has. */
  boolean onlyCountsRows() {
    for (JsonNode one : Json.parse(json)) {
      if (!"count_star".equals(one.get("function").asText())) {
        return false;
      }
    }
    return true;
  }

  /** Add one aggregate and return its type, or null. */
  private static DataType add(ArrayNode json, AggregateFunc function, StructType schema) {
    if (function instanceof CountStar) {
      json.addObject().put("function", "count_star");
      return DataTypes.LongType;
    }
    if (function instanceof Count count && !count.isDistinct()) {
      return put(json, "count", count.column(), schema) ? DataTypes.LongType : null;
    }
    if (function instanceof Min min) {
      return putExtreme(json, "min", min.column(), schema);
    }
    return function instanceof Max max ? putExtreme(json, "max", max.column(), schema) : null;
  }

  private static DataType putExtreme(ArrayNode json, String function, Expression column, StructType schema) {
    if (!(column instanceof NamedReference reference) || !ColumnOrder.isSortedAlike(reference, schema)) {
      return null;
    }
    return put(json, function, column, schema) ? schema.apply(reference.fieldNames()[0]).dataType() : null;
  }

  private static boolean put(ArrayNode json, String function, Expression column, StructType schema) {
    if (!(column instanceof NamedReference reference)
        || reference.fieldNames().length != 1
        || !Arrays.asList(schema.fieldNames()).contains(reference.fieldNames()[0])) {
      return false;
    }
    json.addObject().put("function", function).put("column", reference.fieldNames()[0]);
    return true;
  }
}
