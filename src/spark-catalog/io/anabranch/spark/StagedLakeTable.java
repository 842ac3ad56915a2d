package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * A table that a statement creates or replaces. It appears with all its rows in one commit, when Spark reports that the
 * statement has succeeded.
 */
final class StagedLakeTable implements StagedTable, SupportsWrite {
  private final String name;
  private final Settings settings;
  private final ObjectNode request;
  private final TableInfo info;
  private BegunWrite write;
  private WriterCommitMessage[] results = new WriterCommitMessage[0];

  /** The request begins the write: it names the table, the mode, the key and the message. */
  StagedLakeTable(String name, Settings settings, ObjectNode request, TableInfo info) {
    this.name = name;
    this.settings = settings;
    this.request = request;
    this.info = info;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Column[] columns() {
    return info.columns();
  }

  @Override
  public Map<String, String> properties() {
    return info.properties();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_WRITE, TableCapability.TRUNCATE);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo logical) {
    return new StagedWriteBuilder();
  }

  @Override
  public void commitStagedChanges() {
    if (write == null) {
      write = BegunWrite.begin(settings, request, info.schema()); // no query: a table without rows
    }
    write.commit(results);
  }

  @Override
  public void abortStagedChanges() {
    if (write != null) {
      write.abort();
    }
  }

  private final class StagedWriteBuilder implements WriteBuilder, SupportsTruncate {
    @Override
    public WriteBuilder truncate() {
      return this;
    }

    @Override
    public Write build() {
      return new Write() {
        @Override
        public BatchWrite toBatch() {
          write = BegunWrite.begin(settings, request, info.schema());
          return new StagedBatchWrite();
        }
      };
    }
  }

  /** Keeps what the tasks wrote until the statement has succeeded. */
  private final class StagedBatchWrite implements BatchWrite {
    /** See {@link LakeWriteBuilder.RowBatchWrite#useCommitCoordinator}. */
    @Override
    public boolean useCommitCoordinator() {
      return false;
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
      return new RowWriter.Factory(settings, write.taskRequest("write_rows"), write.schema());
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      results = messages;
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      results = new WriterCommitMessage[0];
    }
  }
}
