package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Opens the parts of a scan on the executors. Requests travel as text. */
final class BatchReaderFactory implements PartitionReaderFactory {
  private final Settings settings;
  private final StructType columns;

  BatchReaderFactory(Settings settings, StructType columns) {
    this.settings = settings;
    this.columns = columns;
  }

  /** One part of a scan: the request that all parts share, and the split as the gateway of the driver planned it. */
  record Part(String request, String split) implements InputPartition {
    /** Without the request, which holds credentials. */
    @Override
    public String toString() {
      return "anabranch part " + split;
    }
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("this scan is columnar");
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    Part part = (Part) partition;
    ObjectNode full = (ObjectNode) Json.parse(part.request());
    full.set("split", Json.parse(part.split()));
    try {
      Connection connection = Gateway.connect(settings);
      try {
        connection.sendJson(full);
        return new BatchReader(connection, columns);
      } catch (IOException e) {
        connection.close();
        throw e;
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
