package io.anabranch.spark;

import java.io.IOException;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The Arrow batches of one part of a scan. Their memory is that of Arrow: nothing is copied into rows. */
final class BatchReader implements PartitionReader<ColumnarBatch> {
  private final Connection connection;
  private final BufferAllocator memory;
  private final ArrowStreamReader input;
  private final StructType columns;
  private ColumnarBatch batch;

  BatchReader(Connection connection, StructType columns) {
    this.connection = connection;
    this.columns = columns;
    memory = ArrowUtils.rootAllocator().newChildAllocator("anabranch scan", 0, Long.MAX_VALUE);
    input = new ArrowStreamReader(connection.arrowInput(), memory);
  }

  @Override
  public boolean next() throws IOException {
    if (!input.loadNextBatch()) {
      return false;
    }
    // A batch may bring other buffers than the one before, so that its columns are made for it alone.
    List<FieldVector> vectors = input.getVectorSchemaRoot().getFieldVectors();
    ColumnVector[] found = new ColumnVector[vectors.size()];
    for (int n = 0; n < found.length; n++) {
      found[n] = ArrowColumns.of(vectors.get(n), columns.fields()[n].dataType());
    }
    batch = new ColumnarBatch(found, input.getVectorSchemaRoot().getRowCount());
    return true;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    try {
      connection.close();
    } finally {
      input.close();
      memory.close();
    }
  }
}
