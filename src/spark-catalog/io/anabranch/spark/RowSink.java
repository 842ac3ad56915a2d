package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Closeable;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/** Rows of a task on their way to the gateway, as one request that is answered after the last row. */
final class RowSink implements Closeable {
  private static final int ROWS_PER_BATCH = 1 << 15;
  private static final long BYTES_PER_BATCH = 64L << 20;

  private final Connection connection;
  private final BufferAllocator memory;
  private final VectorSchemaRoot root;
  private final ArrowWriter batch;
  private final ArrowStreamWriter output;
  private final StructType schema;
  /** Created for the first row of unknown size. */
  private UnsafeProjection measured;
  private int rows;
  private long bytes;
  private boolean isClosed;

  RowSink(Settings settings, String request, StructType schema) throws IOException {
    this.schema = schema;
    connection = Gateway.connect(settings);
    memory = ArrowUtils.rootAllocator().newChildAllocator("anabranch write", 0, Long.MAX_VALUE);
    root = VectorSchemaRoot.create(ArrowUtils.toArrowSchema(schema, "UTC", true, false, false), memory);
    batch = ArrowWriter.create(root);
    output = new ArrowStreamWriter(root, null, connection.arrowOutput());
    try {
      connection.sendJson(Json.parse(request));
      output.start();
    } catch (IOException e) {
      IOException explained = explained(e);
      close();
      throw explained;
    }
  }

  void add(InternalRow row) throws IOException {
    UnsafeRow measuredRow = row instanceof UnsafeRow unsafe ? unsafe : measure(row);
    // A row may be large, so that the number of rows alone does not bound a batch: an Arrow vector of text holds at
    // most 2 GB.
    if (rows > 0 && bytes + measuredRow.getSizeInBytes() > BYTES_PER_BATCH) {
      flush();
    }
    batch.write(measuredRow);
    rows++;
    bytes += measuredRow.getSizeInBytes();
    if (rows == ROWS_PER_BATCH) {
      flush();
    }
  }

  private UnsafeRow measure(InternalRow row) {
    if (measured == null) {
      measured = UnsafeProjection.create(schema);
    }
    return measured.apply(row);
  }

  /** Send what is left, and return the answer. */
  JsonNode finish() throws IOException {
    try {
      if (rows > 0) {
        flush();
      }
      output.end();
      connection.sendEnd();
    } catch (IOException e) {
      throw explained(e);
    }
    return connection.readJson();
  }

  @Override
  public void close() throws IOException {
    if (isClosed) {
      return;
    }
    isClosed = true;
    try {
      connection.close();
    } finally {
      root.close();
      memory.close();
    }
  }

  private void flush() throws IOException {
    batch.finish();
    try {
      output.writeBatch();
    } catch (IOException e) {
      throw explained(e);
    }
    batch.reset();
    rows = 0;
    bytes = 0;
  }

  /** Throw the error that the gateway reported before it stopped to read; return another one if it did not. */
  private IOException explained(IOException failure) {
    if (failure instanceof ClosedChannelException) {
      return failure; // the task was cancelled
    }
    try {
      connection.readJson();
    } catch (IOException e) {
      failure.addSuppressed(e);
    }
    return new IOException("the Anabranch process of this JVM ended in the middle of a write", failure);
  }
}
