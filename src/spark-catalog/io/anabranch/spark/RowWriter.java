package io.anabranch.spark;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/** Writes the new rows of one task. Nothing is sent before the first row. */
final class RowWriter implements DataWriter<InternalRow> {
  private final Factory factory;
  private RowSink sink;

  private RowWriter(Factory factory) {
    this.factory = factory;
  }

  /** Makes a writer for each task. */
  record Factory(Settings settings, String request, StructType schema) implements DataWriterFactory {
    /** Without the requests, which hold credentials. */
    @Override
    public String toString() {
      return "anabranch rows";
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      return new RowWriter(this);
    }
  }

  @Override
  public void write(InternalRow row) throws IOException {
    if (sink == null) {
      sink = new RowSink(factory.settings(), factory.request(), factory.schema());
    }
    sink.add(row);
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    return TaskResult.toMessage(sink == null ? Json.object() : sink.finish());
  }

  @Override
  public void abort() throws IOException {
    close();
  }

  @Override
  public void close() throws IOException {
    if (sink != null) {
      sink.close();
    }
  }
}
