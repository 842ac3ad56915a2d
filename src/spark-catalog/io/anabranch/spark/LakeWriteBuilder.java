package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/** INSERT and INSERT OVERWRITE: new rows, after some or all of the old ones are removed. */
final class LakeWriteBuilder implements WriteBuilder, SupportsOverwriteV2, SupportsStreamingUpdateAsAppend {
  private final LakeTable table;
  private final LogicalWriteInfo info;
  private String mode = "append";
  private Predicate[] removed;

  LakeWriteBuilder(LakeTable table, LogicalWriteInfo info) {
    this.table = table;
    this.info = info;
  }

  @Override
  public WriteBuilder truncate() {
    mode = "overwrite";
    return this;
  }

  @Override
  public WriteBuilder overwrite(Predicate[] predicates) {
    if (predicates.length == 0 || (predicates.length == 1 && predicates[0] instanceof AlwaysTrue)) {
      return truncate();
    }
    removed = predicates;
    return this;
  }

  @Override
  public Write build() {
    String message = Statement.current("Write '" + table.key + "' with Spark");
    return new Write() {
      @Override
      public String description() {
        return "anabranch " + mode + " " + table.key;
      }

      @Override
      public BatchWrite toBatch() {
        return new RowBatchWrite(begin(message));
      }

      /** Spark builds a write for each batch of a stream. */
      @Override
      public StreamingWrite toStreaming() {
        return new StreamBatchWrite(begin("Batch of a stream into '" + table.key + "'"), info.queryId());
      }
    };
  }

  private BegunWrite begin(String message) {
    ObjectNode request = table.request("begin_write");
    request.put("mode", WriteOptions.isUpsert(table.writeOptions(info.options()), mode) ? "upsert" : mode);
    WriteOptions.put(request, table.writeOptions(info.options()), message);
    if (removed != null) {
      request.set("filters", ExpressionJson.of(removed));
    }
    return BegunWrite.begin(table.settings, request, info.schema());
  }

  /** A job that adds rows. */
  static final class RowBatchWrite implements BatchWrite {
    private final BegunWrite write;

    RowBatchWrite(BegunWrite write) {
      this.write = write;
    }

    /**
     * Two attempts of a task may both end: the driver takes the result of one, and what the other wrote belongs to no
     * commit. With Spark's coordinator, a statement would fail if an executor is lost while its task commits.
     */
    @Override
    public boolean useCommitCoordinator() {
      return false;
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
      return new RowWriter.Factory(write.settings(), write.taskRequest("write_rows"), write.schema());
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      write.commit(messages);
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      write.abort();
    }
  }
}
