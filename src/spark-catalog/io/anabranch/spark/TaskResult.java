package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;

/**
 * What one task wrote, as the JSON that the gateway of its machine answered. It travels in a class of Spark's own: the
 * driver reads the results of tasks with a class loader that does not know the jars which a Connect session added.
 */
final class TaskResult {
  private TaskResult() {}

  static WriterCommitMessage toMessage(JsonNode result) {
    return new PythonWriterCommitMessage(result.toString().getBytes(StandardCharsets.UTF_8));
  }

  static JsonNode fromMessage(WriterCommitMessage message) {
    return Json.parse(((PythonWriterCommitMessage) message).pickledMessage());
  }
}
