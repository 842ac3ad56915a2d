package io.anabranch.spark;

import java.util.Arrays;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** Which columns the gateway compares as Spark does. */
final class ColumnOrder {
  private ColumnOrder() {}

  /**
   * Whether a column is one of the table itself, and of a type that both sides sort in the same order. Floating-point
   * numbers are not: to Spark, every NaN is the largest number, and both zeros are equal.
   */
  static boolean isSortedAlike(NamedReference reference, StructType schema) {
    String[] name = reference.fieldNames();
    return name.length == 1
        && Arrays.asList(schema.fieldNames()).contains(name[0])
        && isSortedAlike(schema.apply(name[0]).dataType());
  }

  static boolean isSortedAlike(DataType type) {
    return type instanceof IntegralType
        || type instanceof DecimalType
        || type instanceof DateType
        || type instanceof TimestampType
        || type instanceof TimestampNTZType
        || type instanceof BooleanType
        || type instanceof BinaryType
        || type.equals(DataTypes.StringType);
  }
}
