package io.anabranch.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.DateDayVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.SmallIntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Arrow's vectors as columns of Spark. Spark's own {@link ArrowColumnVector} checks bounds and nulls of every value
 * and makes a BigDecimal of every decimal; these columns read the memory directly. A query asks for each value of
 * a batch, so that this is most of the time that a scan takes. Types with parts inside are left to Spark's class.
 */
final class ArrowColumns {
  private static final int LONG_DIGITS = 18;

  private ArrowColumns() {}

  static ColumnVector of(FieldVector vector, DataType type) {
    if (vector instanceof BigIntVector
        || vector instanceof TimeStampMicroTZVector
        || vector instanceof TimeStampMicroVector) {
      return new LongColumn(vector, type);
    }
    if (vector instanceof IntVector || vector instanceof DateDayVector) {
      return new IntColumn(vector, type);
    }
    if (vector instanceof VarCharVector || vector instanceof VarBinaryVector) {
      return new BytesColumn(vector, type);
    }
    if (vector instanceof DecimalVector) {
      return new DecimalColumn(vector, type);
    }
    if (vector instanceof Float8Vector) {
      return new DoubleColumn(vector, type);
    }
    if (vector instanceof Float4Vector) {
      return new FloatColumn(vector, type);
    }
    if (vector instanceof SmallIntVector) {
      return new ShortColumn(vector, type);
    }
    if (vector instanceof TinyIntVector) {
      return new ByteColumn(vector, type);
    }
    if (vector instanceof BitVector) {
      return new BooleanColumn(vector, type);
    }
    return new NestedColumn(vector);
  }

  /** A column of another type. Spark closes each batch that it has read, and its class would drop the vector's parts. */
  private static final class NestedColumn extends ArrowColumnVector {
    NestedColumn(FieldVector vector) {
      super(vector);
    }

    /** The reader frees the memory of all its batches. */
    @Override
    public void close() {}
  }

  /** A column of values that have no parts. Each subclass reads one type; the other types are errors of the caller. */
  private abstract static class FlatColumn extends ColumnVector {
    final long data;
    private final long validity;
    private final int nulls;

    FlatColumn(FieldVector vector, DataType type) {
      super(type);
      data = vector.getDataBuffer().memoryAddress();
      nulls = vector.getNullCount();
      validity = nulls == 0 ? 0 : vector.getValidityBuffer().memoryAddress();
    }

    @Override
    public final boolean hasNull() {
      return nulls > 0;
    }

    @Override
    public final int numNulls() {
      return nulls;
    }

    @Override
    public final boolean isNullAt(int row) {
      return nulls > 0 && !isSet(validity, row);
    }

    /** The reader frees the memory of all its batches. */
    @Override
    public final void close() {}

    @Override
    public boolean getBoolean(int row) {
      throw unsupported();
    }

    @Override
    public byte getByte(int row) {
      throw unsupported();
    }

    @Override
    public short getShort(int row) {
      throw unsupported();
    }

    @Override
    public int getInt(int row) {
      throw unsupported();
    }

    @Override
    public long getLong(int row) {
      throw unsupported();
    }

    @Override
    public float getFloat(int row) {
      throw unsupported();
    }

    @Override
    public double getDouble(int row) {
      throw unsupported();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
      throw unsupported();
    }

    @Override
    public UTF8String getUTF8String(int row) {
      throw unsupported();
    }

    @Override
    public byte[] getBinary(int row) {
      throw unsupported();
    }

    @Override
    public final ColumnarArray getArray(int row) {
      throw unsupported();
    }

    @Override
    public final ColumnarMap getMap(int row) {
      throw unsupported();
    }

    @Override
    public final ColumnVector getChild(int ordinal) {
      throw unsupported();
    }

    static boolean isSet(long bits, int row) {
      return (Platform.getByte(null, bits + (row >> 3)) & (1 << (row & 7))) != 0;
    }

    private UnsupportedOperationException unsupported() {
      return new UnsupportedOperationException("a value of another type was asked of a column of " + type.sql());
    }
  }

  private static final class BooleanColumn extends FlatColumn {
    BooleanColumn(FieldVector vector, DataType type) {
      super(vector, type);
    }

    @Override
    public boolean getBoolean(int row) {
      return isSet(data, row);
    }
  }

  private static final class ByteColumn extends FlatColumn {
    ByteColumn(FieldVector vector, DataType type) {
      super(vector, type);
    }

    @Override
    public byte getByte(int row) {
      return Platform.getByte(null, data + row);
    }
  }

  private static final class ShortColumn extends FlatColumn {
    ShortColumn(FieldVector vector, DataType type) {
      super(vector, type);
    }

    @Override
    public short getShort(int row) {
      return Platform.getShort(null, data + 2L * row);
    }
  }

  private static final class IntColumn extends FlatColumn {
    IntColumn(FieldVector vector, DataType type) {
      super(vector, type);
    }

    @Override
    public int getInt(int row) {
      return Platform.getInt(null, data + 4L * row);
    }
  }

  private static final class LongColumn extends FlatColumn {
    LongColumn(FieldVector vector, DataType type) {
      super(vector, type);
    }

    @Override
    public long getLong(int row) {
      return Platform.getLong(null, data + 8L * row);
    }
  }

  private static final class FloatColumn extends FlatColumn {
    FloatColumn(FieldVector vector, DataType type) {
      super(vector, type);
    }

    @Override
    public float getFloat(int row) {
      return Platform.getFloat(null, data + 4L * row);
    }
  }

  private static final class DoubleColumn extends FlatColumn {
    DoubleColumn(FieldVector vector, DataType type) {
      super(vector, type);
    }

    @Override
    public double getDouble(int row) {
      return Platform.getDouble(null, data + 8L * row);
    }
  }

  /** Decimals of 16 bytes, the lowest first. Up to 18 digits fit in the first 8 of them. */
  private static final class DecimalColumn extends FlatColumn {
    private static final int WIDTH = 16;

    DecimalColumn(FieldVector vector, DataType type) {
      super(vector, type);
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
      if (isNullAt(row)) {
        return null;
      }
      long address = data + (long) WIDTH * row;
      if (precision <= LONG_DIGITS) {
        return Decimal.createUnsafe(Platform.getLong(null, address), precision, scale);
      }
      byte[] highestFirst = new byte[WIDTH];
      for (int n = 0; n < WIDTH; n++) {
        highestFirst[n] = Platform.getByte(null, address + WIDTH - 1 - n);
      }
      return Decimal.apply(new BigDecimal(new BigInteger(highestFirst), scale), precision, scale);
    }
  }

  /** Text and binary values: offsets of 4 bytes into the data. */
  private static final class BytesColumn extends FlatColumn {
    private final long offsets;

    BytesColumn(FieldVector vector, DataType type) {
      super(vector, type);
      offsets = vector.getOffsetBuffer().memoryAddress();
    }

    @Override
    public UTF8String getUTF8String(int row) {
      if (isNullAt(row)) {
        return null;
      }
      int start = Platform.getInt(null, offsets + 4L * row);
      int end = Platform.getInt(null, offsets + 4L * row + 4);
      return UTF8String.fromAddress(null, data + start, end - start);
    }

    @Override
    public byte[] getBinary(int row) {
      return isNullAt(row) ? null : getUTF8String(row).getBytes();
    }
  }
}
