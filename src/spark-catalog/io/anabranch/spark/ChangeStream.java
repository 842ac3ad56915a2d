package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxFiles;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A stream that follows a branch, commit by commit. An offset is a commit, so that a batch which is read again has the same
 * rows. It reads the changes of a table, or its new rows alone.
 */
final class ChangeStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final Settings settings;
  private final ObjectNode about;
  private final CaseInsensitiveStringMap options;
  private final StructType columns;
  /** Which rows: null for all changes, "new" for inserted rows, "skip" for those if updates and deletions are skipped. */
  private final String rows;
  /** The commit to stop at, for a query that reads what is there and ends. */
  private String until;

  /** {@code about} has the table, its branch, and the commit whose columns are read. */
  ChangeStream(
      Settings settings, JsonNode about, CaseInsensitiveStringMap options, StructType columns, String rows) {
    this.settings = settings;
    this.about = (ObjectNode) about;
    this.options = options;
    this.columns = columns;
    this.rows = rows;
  }

  /** A commit, as the gateway wrote it. */
  private static final class CommitOffset extends Offset {
    private final JsonNode offset;

    CommitOffset(JsonNode offset) {
      this.offset = offset;
    }

    @Override
    public String json() {
      return offset.toString();
    }
  }

  @Override
  public Offset initialOffset() {
    return new CommitOffset(call(request("begin_stream")).get("offset"));
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new CommitOffset(Json.parse(json));
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    // Spark knows rows, bytes and files: a commit is counted as a file.
    return ReadLimit.maxFiles(call(request("begin_stream")).get("most").asInt());
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    until = call(request("find_head")).get("commit").asText();
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks for an offset with a limit");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    ObjectNode request = request("find_offset").put("until", until);
    request.set("start", Json.parse(start.json()));
    if (limit instanceof ReadMaxFiles most) {
      request.put("most", most.maxFiles());
    }
    return new CommitOffset(call(request).get("offset"));
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    ObjectNode request = request("plan_stream");
    request.set("start", Json.parse(start.json()));
    request.set("end", Json.parse(end.json()));
    String reading = request("read_metadata").put("schema", columns.json()).put("rows", rows).toString();
    List<InputPartition> parts = new ArrayList<>();
    for (JsonNode split : call(request).get("splits")) {
      parts.add(new BatchReaderFactory.Part(reading, split.toString()));
    }
    return parts.toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new BatchReaderFactory(settings, columns);
  }

  @Override
  public void commit(Offset end) {
    // Commits stay in the history of the branch: there is nothing to free.
  }

  @Override
  public void stop() {}

  private JsonNode call(ObjectNode request) {
    return Gateway.call(settings, request);
  }

  private ObjectNode request(String operation) {
    ObjectNode request = Gateway.request(settings, operation);
    request.set("metadata", about);
    request.set("options", Json.of(options));
    return request;
  }
}
