package io.anabranch.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/**
 * One batch of a stream, as one commit. The commit names the query and the number of the batch, so that a batch which
 * Spark repeats after a failure is not published twice.
 */
final class StreamBatchWrite implements StreamingWrite {
  private final BegunWrite write;
  private final String query;

  StreamBatchWrite(BegunWrite write, String query) {
    this.write = write;
    this.query = query;
  }

  /** See {@link LakeWriteBuilder.RowBatchWrite#useCommitCoordinator}. */
  @Override
  public boolean useCommitCoordinator() {
    return false;
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo physical) {
    return new Factory(new RowWriter.Factory(write.settings(), write.taskRequest("write_rows"), write.schema()));
  }

  @Override
  public void commit(long epoch, WriterCommitMessage[] messages) {
    write.commitBatch(query, epoch, messages);
  }

  @Override
  public void abort(long epoch, WriterCommitMessage[] messages) {
    write.abort();
  }

  /** Makes a writer for each task of the batch. */
  private record Factory(RowWriter.Factory rows) implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
      return rows.createWriter(partition, task);
    }
  }
}
