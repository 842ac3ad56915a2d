package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/** A write that the gateway of the driver has begun. It ends with one commit, or with none. */
final class BegunWrite {
  private final Settings settings;
  private final String id;
  private final JsonNode writer;
  private final StructType schema;

  private BegunWrite(Settings settings, String id, JsonNode writer, StructType schema) {
    this.settings = settings;
    this.id = id;
    this.writer = writer;
    this.schema = schema;
  }

  /** Begin a write. The request has the mode and the table; rows come in the given columns. */
  static BegunWrite begin(Settings settings, ObjectNode request, StructType schema) {
    request.put("schema", schema.json());
    JsonNode answer = Gateway.call(settings, request);
    return new BegunWrite(settings, answer.get("write").asText(), answer.get("writer"), schema);
  }

  StructType schema() {
    return schema;
  }

  Settings settings() {
    return settings;
  }

  /** The request by which a task sends rows, as text. */
  String taskRequest(String operation) {
    ObjectNode request = Gateway.request(settings, operation);
    request.set("writer", writer);
    return request.toString();
  }

  void commit(WriterCommitMessage[] messages) {
    ObjectNode request = Gateway.request(settings, "commit_write").put("write", id);
    request.set("tasks", tasksOf(messages));
    Gateway.call(settings, request);
  }

  /** Commit one batch of a stream, unless an earlier attempt has done so. */
  void commitBatch(String query, long epoch, WriterCommitMessage[] messages) {
    ObjectNode request = Gateway.request(settings, "commit_batch").put("write", id);
    request.put("query", query).put("epoch", epoch);
    request.set("tasks", tasksOf(messages));
    Gateway.call(settings, request);
  }

  void abort() {
    Gateway.call(settings, Gateway.request(settings, "abort_write").put("write", id));
  }

  private static ArrayNode tasksOf(WriterCommitMessage[] messages) {
    ArrayNode tasks = Json.array();
    for (WriterCommitMessage message : messages) {
      if (message != null) {
        tasks.add(TaskResult.fromMessage(message));
      }
    }
    return tasks;
  }
}
