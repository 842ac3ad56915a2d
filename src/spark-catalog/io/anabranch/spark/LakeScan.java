package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;

/** A scan of some columns and rows of one pinned table. */
final class LakeScan implements Scan, Batch, SupportsReportStatistics {
  private final LakeTable table;
  private final StructType columns;
  private final String where;
  private final Integer limit;

  LakeScan(LakeTable table, StructType columns, String where, Integer limit) {
    this.table = table;
    this.columns = columns;
    this.where = where;
    this.limit = limit;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return "anabranch " + table.key + " columns=[" + String.join(", ", columns.fieldNames()) + "] filter=[" + where
        + "]" + (limit == null ? "" : " limit=" + limit);
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Statistics estimateStatistics() {
    double share = (double) Math.max(1, columns.defaultSize()) / Math.max(1, table.structType().defaultSize());
    long size = Math.max(1, (long) (table.bytes * share));
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return OptionalLong.of(size);
      }

      @Override
      public OptionalLong numRows() {
        return OptionalLong.of(table.rows);
      }
    };
  }

  @Override
  public InputPartition[] planInputPartitions() {
    ObjectNode request = Gateway.request(table.settings, "plan_scan");
    request.set("pin", table.pin);
    request.put("where", where.isEmpty() ? null : where);
    request.put("cores", SparkContext.getOrCreate().defaultParallelism());
    List<InputPartition> parts = new ArrayList<>();
    for (JsonNode split : Gateway.call(table.settings, request).get("splits")) {
      parts.add(new BatchReaderFactory.Part(split.toString()));
    }
    return parts.toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    ObjectNode request = Gateway.request(table.settings, "read_rows");
    request.set("pin", table.pin);
    request.put("where", where.isEmpty() ? null : where);
    request.put("limit", limit);
    request.put("schema", columns.json());
    return new BatchReaderFactory(table.settings, request.toString(), columns);
  }
}
