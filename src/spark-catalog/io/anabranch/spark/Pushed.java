package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.types.StructType;

/** What a scan leaves to the gateway. Everything but the columns may be missing: null, or empty for the filter. */
record Pushed(StructType columns, String where, Integer limit, PushedOrder order, PushedAggregates aggregates) {

  /** Add everything to a request. */
  void putInto(ObjectNode request, String runtimeWhere) {
    String full = where.isEmpty() || runtimeWhere.isEmpty() ? where + runtimeWhere : where + " AND " + runtimeWhere;
    request.put("where", full.isEmpty() ? null : full);
    request.put("limit", limit);
    if (order != null) {
      request.set("order", Json.parse(order.json()));
    }
    if (aggregates != null) {
      request.set("aggregates", Json.parse(aggregates.json()));
    }
    request.put("schema", columns.json());
  }

  /** The text that EXPLAIN shows. */
  String describe() {
    StringBuilder text = new StringBuilder();
    if (aggregates == null) {
      text.append(" columns=[").append(String.join(", ", columns.fieldNames())).append(']');
    } else {
      text.append(" aggregates=[").append(aggregates.description()).append(']');
    }
    text.append(" filter=[").append(where).append(']');
    if (order != null) {
      text.append(" order=[").append(order.description()).append(']');
    }
    if (limit != null) {
      text.append(" limit=").append(limit);
    }
    return text.toString();
  }
}
