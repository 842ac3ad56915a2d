package io.anabranch.spark;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** The number of rows of a table, which its manifest has: no job runs. */
final class CountScan implements LocalScan {
  private final LakeTable table;
  private final PushedAggregates aggregates;

  CountScan(LakeTable table, PushedAggregates aggregates) {
    this.table = table;
    this.aggregates = aggregates;
  }

  @Override
  public StructType readSchema() {
    return aggregates.columns();
  }

  @Override
  public String description() {
    return "anabranch " + table.key + " aggregates=[" + aggregates.description() + "] from the manifest";
  }

  @Override
  public InternalRow[] rows() {
    Object[] counts = new Object[aggregates.columns().size()];
    Arrays.fill(counts, table.rows);
    return new InternalRow[] {new GenericInternalRow(counts)};
  }
}
