package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/**
 * Writes the changes of one task in up to three streams: new rows, rows that replace others, and the addresses of deleted
 * rows. Each stream begins with its first row.
 */
final class ChangeWriter implements DeltaWriter<InternalRow> {
  private final Factory factory;
  private RowSink inserted;
  private RowSink moved;
  private RowSink deleted;

  private ChangeWriter(Factory factory) {
    this.factory = factory;
  }

  /** Makes a writer for each task. */
  record Factory(
      Settings settings,
      String insertRequest,
      String moveRequest,
      String deleteRequest,
      StructType rows,
      StructType movedRows,
      StructType rowIds)
      implements DeltaWriterFactory {

    static Factory of(BegunWrite write, String[] primaryKey, StructType rowIds, StructType metadata) {
      ObjectNode move = (ObjectNode) Json.parse(write.taskRequest("write_moved"));
      move.set("primary_key", Json.array(primaryKey));
      StructType movedRows = new StructType(concat(concat(write.schema(), metadata), rowIds).fields());
      return new Factory(
          write.settings(),
          write.taskRequest("write_rows"),
          move.toString(),
          write.taskRequest("write_addresses"),
          write.schema(),
          movedRows,
          rowIds);
    }

    /** The columns of both. Names may repeat: the gateway goes by positions. */
    private static StructType concat(StructType left, StructType right) {
      StructType all = left;
      for (int n = 0; n < right.length(); n++) {
        all = all.add("__" + all.length(), right.fields()[n].dataType(), right.fields()[n].nullable());
      }
      return all;
    }

    /** Without the requests, which hold credentials. */
    @Override
    public String toString() {
      return "anabranch changes";
    }

    @Override
    public DeltaWriter<InternalRow> createWriter(int partition, long task) {
      return new ChangeWriter(this);
    }
  }

  @Override
  public void insert(InternalRow row) throws IOException {
    if (inserted == null) {
      inserted = new RowSink(factory.settings(), factory.insertRequest(), factory.rows());
    }
    inserted.add(row);
  }

  @Override
  public void update(InternalRow metadata, InternalRow rowId, InternalRow row) throws IOException {
    if (moved == null) {
      moved = new RowSink(factory.settings(), factory.moveRequest(), factory.movedRows());
    }
    moved.add(new JoinedRow(row, new JoinedRow(metadata, rowId)));
  }

  @Override
  public void delete(InternalRow metadata, InternalRow rowId) throws IOException {
    if (deleted == null) {
      deleted = new RowSink(factory.settings(), factory.deleteRequest(), factory.rowIds());
    }
    deleted.add(rowId);
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    ObjectNode result = Json.object();
    ArrayNode addresses = Json.array();
    for (RowSink sink : new RowSink[] {inserted, moved, deleted}) {
      if (sink == null) {
        continue;
      }
      JsonNode answer = sink.finish();
      result.setAll((ObjectNode) answer);
      if (answer.has("addresses")) {
        answer.get("addresses").forEach(addresses::add);
      }
    }
    result.set("addresses", addresses);
    return TaskResult.toMessage(result);
  }

  @Override
  public void abort() throws IOException {
    close();
  }

  @Override
  public void close() throws IOException {
    for (RowSink sink : new RowSink[] {inserted, moved, deleted}) {
      if (sink != null) {
        sink.close();
      }
    }
  }
}
