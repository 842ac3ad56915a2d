package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.types.StructType;

/** The order of a top-n query: each part of a scan sorts its own rows, and sends the first n of them. */
record PushedOrder(String json, String description) {

  /** The order, or null where Lance might sort in another way than Spark. */
  static PushedOrder of(SortOrder[] orders, StructType schema) {
    ArrayNode json = Json.array();
    List<String> description = new ArrayList<>();
    for (SortOrder order : orders) {
      if (!(order.expression() instanceof NamedReference reference)
          || !ColumnOrder.isSortedAlike(reference, schema)) {
        return null;
      }
      json.addObject()
          .put("column", reference.fieldNames()[0])
          .put("ascending", order.direction() == SortDirection.ASCENDING)
          .put("nulls_first", order.nullOrdering() == NullOrdering.NULLS_FIRST);
      description.add(order.toString());
    }
    return new PushedOrder(json.toString(), String.join(", ", description));
  }
}
