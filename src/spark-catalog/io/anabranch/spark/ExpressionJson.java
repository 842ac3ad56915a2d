package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.util.HexFormat;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Spark's filters as JSON. What they mean to Lance is decided by the gateway, which knows the table's own types. */
final class ExpressionJson {
  private ExpressionJson() {}

  static ArrayNode of(Expression[] expressions) {
    ArrayNode array = Json.array();
    for (Expression expression : expressions) {
      array.add(of(expression));
    }
    return array;
  }

  static ObjectNode of(Expression expression) {
    ObjectNode object = Json.object();
    if (expression instanceof NamedReference reference) {
      object.put("op", "column").set("name", Json.array(reference.fieldNames()));
    } else if (expression instanceof GeneralScalarExpression scalar) {
      object.put("op", scalar.name()).set("args", of(scalar.children()));
    } else if (expression instanceof Literal<?> literal) { // AlwaysTrue is both
      putValue(object.put("op", "literal"), literal.value());
    } else {
      object.put("op", "unknown");
    }
    return object;
  }

  private static void putValue(ObjectNode object, Object value) {
    if (value == null) {
      object.putNull("value");
    } else if (value instanceof Boolean flag) {
      object.put("value", flag);
    } else if (value instanceof Integer || value instanceof Long || value instanceof Short || value instanceof Byte) {
      object.put("value", ((Number) value).longValue());
    } else if (value instanceof Float || value instanceof Double) {
      // As text: JSON has no NaN and no infinity.
      object.put("value", value.toString());
    } else if (value instanceof Decimal decimal) {
      object.put("value", decimal.toJavaBigDecimal().toPlainString());
    } else if (value instanceof BigDecimal decimal) {
      object.put("value", decimal.toPlainString());
    } else if (value instanceof UTF8String || value instanceof String) {
      object.put("value", value.toString());
    } else if (value instanceof byte[] bytes) {
      object.put("value", HexFormat.of().formatHex(bytes));
    } else {
      object.put("op", "unknown");
    }
  }
}
