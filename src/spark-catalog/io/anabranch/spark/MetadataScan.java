package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A scan of a metadata table. Only its columns are pruned: Spark filters the rows. */
final class MetadataScan implements SupportsPushDownRequiredColumns, Scan, Batch {
  private final Settings settings;
  private final JsonNode loaded;
  private final CaseInsensitiveStringMap options;
  private StructType columns;

  MetadataScan(Settings settings, JsonNode loaded, CaseInsensitiveStringMap options, StructType columns) {
    this.settings = settings;
    this.loaded = loaded;
    this.options = options;
    this.columns = columns;
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  @Override
  public Scan build() {
    return this;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return "anabranch " + loaded.get("key").asText() + " columns=[" + String.join(", ", columns.fieldNames()) + "]";
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return new ChangeStream(settings, loaded.get("metadata"), options, columns, null);
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    String reading = request("read_metadata").put("schema", columns.json()).toString();
    List<InputPartition> parts = new ArrayList<>();
    for (JsonNode split : Gateway.call(settings, request("plan_metadata")).get("splits")) {
      parts.add(new BatchReaderFactory.Part(reading, split.toString()));
    }
    return parts.toArray(new InputPartition[0]);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new BatchReaderFactory(settings, columns);
  }

  private ObjectNode request(String operation) {
    ObjectNode request = Gateway.request(settings, operation);
    request.set("metadata", loaded.get("metadata"));
    request.set("options", Json.of(options));
    return request;
  }
}
