package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table about a table, such as its history. It is read-only; the gateway computes its rows. */
final class MetadataTable implements Table, SupportsRead {
  private final Settings settings;
  private final String name;
  private final JsonNode loaded;
  private final StructType schema;

  MetadataTable(Settings settings, String name, JsonNode loaded) {
    this.settings = settings;
    this.name = name;
    this.loaded = loaded;
    schema = (StructType) DataType.fromJson(loaded.get("schema").asText());
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Column[] columns() {
    return CatalogV2Util.structTypeToV2Columns(schema, false);
  }

  @Override
  public Map<String, String> properties() {
    return Map.of("commit", loaded.get("commit").asText());
  }

  @Override
  public Set<TableCapability> capabilities() {
    // What happened can be followed; what is there can only be read.
    return loaded.get("metadata").get("kind").asText().equals("changes")
        ? EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ)
        : EnumSet.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new MetadataScan(settings, loaded, options, schema);
  }
}
