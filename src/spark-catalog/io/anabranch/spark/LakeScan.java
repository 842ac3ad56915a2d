package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.OptionalLong;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A scan of some columns and rows of one pinned table. */
final class LakeScan implements Scan, Batch, SupportsReportStatistics, SupportsRuntimeV2Filtering {
  private final LakeTable table;
  private final CaseInsensitiveStringMap options;
  private final Pushed pushed;
  /** What the other side of a join leaves to be read, known when the query runs. */
  private String runtimeWhere = "";

  LakeScan(LakeTable table, CaseInsensitiveStringMap options, Pushed pushed) {
    this.table = table;
    this.options = options;
    this.pushed = pushed;
  }

  @Override
  public StructType readSchema() {
    return pushed.columns();
  }

  @Override
  public String description() {
    return "anabranch " + table.key + pushed.describe();
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  /** Spark pushes nothing into a stream. */
  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return table.stream(options, pushed.columns());
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Statistics estimateStatistics() {
    if (pushed.aggregates() != null) {
      return new Estimate(pushed.columns().defaultSize(), 1);
    }
    double share = (double) Math.max(1, pushed.columns().defaultSize()) / Math.max(1, table.structType().defaultSize());
    return new Estimate(Math.max(1, (long) (table.bytes * share)), table.rows);
  }

  /** Rows and bytes of a scan. */
  private record Estimate(long bytes, long rows) implements Statistics {
    @Override
    public OptionalLong sizeInBytes() {
      return OptionalLong.of(bytes);
    }

    @Override
    public OptionalLong numRows() {
      return OptionalLong.of(rows);
    }
  }

  /** The columns by which the other side of a join can narrow the rows: not for a limit or an aggregate. */
  @Override
  public NamedReference[] filterAttributes() {
    if (pushed.limit() != null || pushed.aggregates() != null) {
      return new NamedReference[0];
    }
    return Arrays.stream(pushed.columns().fields())
        .filter(field -> ColumnOrder.isSortedAlike(field.dataType()))
        .map(StructField::name)
        .map(name -> Expressions.column("`" + name.replace("`", "``") + "`"))
        .toArray(NamedReference[]::new);
  }

  @Override
  public void filter(Predicate[] predicates) {
    List<String> found = new ArrayList<>();
    for (JsonNode answer : LakeScanBuilder.askGateway(table, RuntimeFilters.shorten(predicates))) {
      if (!answer.isNull()) {
        found.add(answer.get("sql").asText());
      }
    }
    runtimeWhere = String.join(" AND ", found);
  }

  /** Each part carries its own request, so that it is read with the filter that it was planned with. */
  @Override
  public InputPartition[] planInputPartitions() {
    ObjectNode request = Gateway.request(table.settings, "plan_scan");
    request.set("version_ref", table.versionRef);
    request.set("bases", table.bases);
    pushed.putInto(request, runtimeWhere);
    request.put("cores", SparkContext.getOrCreate().defaultParallelism());
    JsonNode splits = Gateway.call(table.settings, request).get("splits");
    request.put("op", "read_rows");
    String text = request.toString();
    List<InputPartition> parts = new ArrayList<>();
    for (JsonNode split : splits) {
      parts.add(new BatchReaderFactory.Part(text, split.toString()));
    }
    return parts.toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new BatchReaderFactory(table.settings, pushed.columns());
  }

  /** Equal scans read the same rows: Spark then runs a part of a plan once that a query has twice. */
  @Override
  public boolean equals(Object other) {
    return other instanceof LakeScan scan
        && pushed.equals(scan.pushed)
        && table.versionRef.equals(scan.table.versionRef)
        && table.bases.equals(scan.table.bases)
        && table.settings.repository.equals(scan.table.settings.repository);
  }

  @Override
  public int hashCode() {
    return Objects.hash(pushed, table.versionRef);
  }
}
