package io.anabranch.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON values, by the library that Spark itself uses. */
final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  static ObjectNode object() {
    return MAPPER.createObjectNode();
  }

  static ArrayNode array() {
    return MAPPER.createArrayNode();
  }

  static ArrayNode array(String... values) {
    ArrayNode array = array();
    for (String value : values) {
      array.add(value);
    }
    return array;
  }

  static ObjectNode of(Map<String, String> values) {
    ObjectNode object = object();
    values.forEach(object::put);
    return object;
  }

  static String[] strings(JsonNode array) {
    List<String> values = new ArrayList<>();
    array.forEach(value -> values.add(value.asText()));
    return values.toArray(new String[0]);
  }

  static Map<String, String> map(JsonNode object) {
    Map<String, String> values = new LinkedHashMap<>();
    object.properties().forEach(field -> values.put(field.getKey(), field.getValue().asText()));
    return values;
  }

  static JsonNode parse(String text) {
    try {
      return MAPPER.readTree(text);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException("the Anabranch process answered " + text, e);
    }
  }

  static JsonNode parse(byte[] text) {
    return parse(new String(text, java.nio.charset.StandardCharsets.UTF_8));
  }
}
