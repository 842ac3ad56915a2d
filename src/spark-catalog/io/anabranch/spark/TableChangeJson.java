package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.catalog.TableChange;

/** The changes of an ALTER TABLE as JSON, in the order in which they are to be made. */
final class TableChangeJson {
  private TableChangeJson() {}

  static ArrayNode of(TableChange[] changes) {
    ArrayNode array = Json.array();
    for (TableChange change : changes) {
      array.add(of(change));
    }
    return array;
  }

  private static ObjectNode of(TableChange change) {
    ObjectNode object = Json.object();
    if (change instanceof TableChange.ColumnChange column) {
      object.set("path", Json.array(column.fieldNames()));
      return putColumnChange(object, column);
    } else if (change instanceof TableChange.SetProperty property) {
      return object.put("kind", "set_property").put("name", property.property()).put("value", property.value());
    } else if (change instanceof TableChange.RemoveProperty property) {
      return object.put("kind", "remove_property").put("name", property.property());
    } else if (change instanceof TableChange.AddConstraint added) {
      return object.put("kind", "add_constraint").setAll(TableInfoJson.of(added.constraint()));
    } else if (change instanceof TableChange.DropConstraint dropped) {
      return object.put("kind", "drop_constraint").put("name", dropped.name()).put("if_exists", dropped.ifExists());
    }
    return object.put("kind", change.getClass().getSimpleName());
  }

  private static ObjectNode putColumnChange(ObjectNode object, TableChange.ColumnChange change) {
    if (change instanceof TableChange.AddColumn added) {
      object.put("kind", "add_column").put("type", added.dataType().json()).put("nullable", added.isNullable());
      object.put("comment", added.comment()).put("is_last", added.position() == null);
      object.set("default", TableInfoJson.of(added.defaultValue()));
    } else if (change instanceof TableChange.DeleteColumn deleted) {
      object.put("kind", "drop_column").put("if_exists", deleted.ifExists());
    } else if (change instanceof TableChange.RenameColumn renamed) {
      object.put("kind", "rename_column").put("name", renamed.newName());
    } else if (change instanceof TableChange.UpdateColumnType updated) {
      object.put("kind", "set_type").put("type", updated.newDataType().json());
    } else if (change instanceof TableChange.UpdateColumnNullability updated) {
      object.put("kind", "set_nullable").put("nullable", updated.nullable());
    } else if (change instanceof TableChange.UpdateColumnComment updated) {
      object.put("kind", "set_comment").put("comment", updated.newComment());
    } else if (change instanceof TableChange.UpdateColumnDefaultValue updated) {
      object.put("kind", "set_default").set("default", TableInfoJson.of(updated.newCurrentDefault()));
    } else {
      object.put("kind", change.getClass().getSimpleName());
    }
    return object;
  }
}
