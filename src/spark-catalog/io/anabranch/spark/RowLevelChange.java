package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * UPDATE, DELETE and MERGE. A row is named by its address in the version that the statement reads, so that tables without
 * a primary key can be changed, too. An updated row keeps its id, by which differences and histories recognise it.
 */
final class RowLevelChange implements RowLevelOperation, SupportsDelta {
  private final LakeTable table;
  private final RowLevelOperationInfo operation;

  RowLevelChange(LakeTable table, RowLevelOperationInfo operation) {
    this.table = table;
    this.operation = operation;
  }

  @Override
  public Command command() {
    return operation.command();
  }

  @Override
  public String description() {
    return "anabranch " + command() + " " + table.key;
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return table.newScanBuilder(options);
  }

  /** The address, and the key: whether an update changes the key is seen by comparing the old with the new one. */
  @Override
  public NamedReference[] rowId() {
    List<NamedReference> references = new ArrayList<>();
    references.add(Expressions.column(LakeTable.ROW_ADDRESS));
    for (String column : table.primaryKey) {
      references.add(Expressions.column(column));
    }
    return references.toArray(new NamedReference[0]);
  }

  @Override
  public NamedReference[] requiredMetadataAttributes() {
    return new NamedReference[] {Expressions.column(LakeTable.ROW_ID)};
  }

  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    String message = Statement.current(command() + " " + table.key);
    return new DeltaWriteBuilder() {
      @Override
      public DeltaWrite build() {
        return new DeltaWrite() {
          @Override
          public DeltaBatchWrite toBatch() {
            return begin(info, message);
          }
        };
      }
    };
  }

  private DeltaBatchWrite begin(LogicalWriteInfo info, String message) {
    ObjectNode request = table.request("begin_write").put("mode", "change");
    request.set("version_ref", table.versionRef);
    WriteOptions.put(request, table.writeOptions(info.options()), message);
    // A DELETE brings no rows, and so no columns.
    boolean hasRows = info.schema() != null && info.schema().length() > 0;
    StructType rows = hasRows ? info.schema() : table.structType();
    BegunWrite write = BegunWrite.begin(table.settings, request, rows);
    ChangeWriter.Factory factory = ChangeWriter.Factory.of(
        write, table.primaryKey, info.rowIdSchema().orElseThrow(), info.metadataSchema().orElse(new StructType()));
    return new DeltaBatchWrite() {
      /** See {@link LakeWriteBuilder.RowBatchWrite#useCommitCoordinator}. */
      @Override
      public boolean useCommitCoordinator() {
        return false;
      }

      @Override
      public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
        return factory;
      }

      @Override
      public void commit(WriterCommitMessage[] messages) {
        write.commit(messages);
      }

      @Override
      public void abort(WriterCommitMessage[] messages) {
        write.abort();
      }
    };
  }
}
