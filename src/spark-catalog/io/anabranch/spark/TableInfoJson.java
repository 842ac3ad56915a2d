package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.catalog.DefaultValue;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;

/** What a CREATE TABLE defines, as JSON. What of it a repository can hold is decided by the gateway. */
final class TableInfoJson {
  private TableInfoJson() {}

  static ObjectNode of(TableInfo info) {
    ObjectNode object = Json.object();
    object.put("schema", info.schema().json());
    object.set("defaults", defaults(info.columns()));
    object.set("properties", Json.of(propertiesOf(info)));
    object.set("partitions", Json.array(Arrays.stream(info.partitions()).map(Transform::describe).toArray(String[]::new)));
    ArrayNode constraints = Json.array();
    for (Constraint constraint : info.constraints()) {
      constraints.add(of(constraint));
    }
    object.set("constraints", constraints);
    return object;
  }

  /**
   * The properties, without a format that the user did not set: {@code df.write.saveAsTable} without a format names the
   * session's default, as if the user had written it.
   */
  private static Map<String, String> propertiesOf(TableInfo info) {
    Map<String, String> properties = new HashMap<>(info.properties());
    String format = properties.get(TableCatalog.PROP_PROVIDER);
    if (format != null && format.equals(SQLConf.get().defaultDataSourceName()) && !names(format)) {
      properties.remove(TableCatalog.PROP_PROVIDER);
    }
    return properties;
  }

  /** Whether the running statement has {@code USING} with this format. */
  private static boolean names(String format) {
    String using = "(?is).*\\busing\\s+`?" + Pattern.quote(format) + "\\b.*";
    return Statement.current("").matches(using);
  }

  static ObjectNode of(Constraint constraint) {
    ObjectNode object = Json.object().put("text", constraint.toDDL());
    if (constraint instanceof PrimaryKey key) {
      object.set("primary_key", columnsOf(key));
    }
    return object;
  }

  /** A default as its text and, where it is one, as a constant. Null removes the default. */
  static ObjectNode of(DefaultValue value) {
    if (value == null) {
      return null;
    }
    ObjectNode object = Json.object().put("sql", value.getSql());
    Expression constant = value.getExpression();
    if (!(constant instanceof Literal<?>) && value instanceof ColumnDefaultValue column) {
      constant = column.getValue();
    }
    if (constant instanceof Literal<?>) {
      object.set("literal", ExpressionJson.of(constant));
    }
    return object;
  }

  private static ObjectNode defaults(Column[] columns) {
    ObjectNode object = Json.object();
    for (Column column : columns) {
      if (column.defaultValue() != null) {
        object.set(column.name(), of(column.defaultValue()));
      }
    }
    return object;
  }

  private static ArrayNode columnsOf(PrimaryKey key) {
    ArrayNode columns = Json.array();
    for (NamedReference column : key.columns()) {
      columns.add(String.join(".", column.fieldNames()));
    }
    return columns;
  }
}
