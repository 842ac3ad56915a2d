package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** The rows that a procedure answered. They are few, and are here already: no job runs. */
final class AnswerScan implements LocalScan {
  private final String procedure;
  private final StructType columns;
  private final InternalRow[] rows;

  AnswerScan(String procedure, StructType columns, InternalRow[] rows) {
    this.procedure = procedure;
    this.columns = columns;
    this.rows = rows;
  }

  /** Send a request that is answered with rows, and read all of them. */
  static InternalRow[] readRows(Settings settings, ObjectNode request, StructType columns) {
    List<InternalRow> rows = new ArrayList<>();
    try {
      Connection connection = Gateway.connect(settings);
      try (BatchReader reader = new BatchReader(connection, columns)) {
        connection.sendJson(request);
        while (reader.next()) {
          // A batch may use the memory of the one before.
          reader.get().rowIterator().forEachRemaining(row -> rows.add(row.copy()));
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException("the Anabranch process of this JVM did not answer", e);
    }
    return rows.toArray(new InternalRow[0]);
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return "the answer of " + procedure;
  }

  @Override
  public InternalRow[] rows() {
    return rows;
  }
}
