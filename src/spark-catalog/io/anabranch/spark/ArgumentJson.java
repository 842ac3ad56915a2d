package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.DoubleNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.DataTypes;

/** The arguments of a procedure as JSON: text, numbers, true and false, and arrays and maps of text. */
final class ArgumentJson {
  private ArgumentJson() {}

  static JsonNode of(Object value) {
    if (value == null) {
      return NullNode.getInstance();
    } else if (value instanceof Boolean flag) {
      return BooleanNode.valueOf(flag);
    } else if (value instanceof Double number) {
      return DoubleNode.valueOf(number);
    } else if (value instanceof Number number) {
      return LongNode.valueOf(number.longValue());
    } else if (value instanceof ArrayData array) {
      return array(array);
    } else if (value instanceof MapData map) {
      ArrayNode keys = array(map.keyArray());
      ArrayNode values = array(map.valueArray());
      ObjectNode object = Json.object();
      for (int n = 0; n < keys.size(); n++) {
        object.set(keys.get(n).asText(), values.get(n));
      }
      return object;
    }
    return TextNode.valueOf(value.toString());
  }

  private static ArrayNode array(ArrayData values) {
    ArrayNode array = Json.array();
    for (int n = 0; n < values.numElements(); n++) {
      array.add(of(values.isNullAt(n) ? null : values.get(n, DataTypes.StringType)));
    }
    return array;
  }
}
