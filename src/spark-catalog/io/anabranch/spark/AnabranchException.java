package io.anabranch.spark;

import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.trees.Origin;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * An error that the gateway reported. The message has the form of the last line of a Python traceback, so that the
 * Python side finds its own error class again. It is one of Spark's own errors: others reach PySpark, the SQL shell
 * and Spark Connect as a Java stack trace.
 */
public final class AnabranchException extends AnalysisException {
  private final String kind;

  AnabranchException(String kind, String problem, String hint) {
    super(
        hint.isEmpty() ? kind + ": " + problem : "anabranch.errors." + kind + ": " + problem + "; " + hint,
        Option.empty(),
        Option.empty(),
        Option.empty(),
        Option.empty(),
        Map$.MODULE$.empty(),
        new QueryContext[0]);
    this.kind = kind;
  }

  /** The name of the Python class, such as {@code TableNotFoundError}. */
  String kind() {
    return kind;
  }

  /** Return this error: Spark would copy it to add the position in the statement behind the hint. */
  @Override
  public AnalysisException withPosition(Origin origin) {
    return this;
  }

  /** Throw this error from methods that declare none. Spark's own code is in Scala, which declares no exceptions. */
  RuntimeException unchecked() {
    return AnabranchException.<RuntimeException>rethrow(this);
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E rethrow(Throwable error) throws E {
    throw (E) error;
  }
}
