package io.anabranch.spark;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * What the jar adds to the SQL of a session: table functions of catalogs. Spark finds this class by itself if the jar is
 * there when the session starts.
 */
public final class AnabranchExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit>
    implements SparkSessionExtensionsProvider {

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    // Rules for hints run before Spark looks up functions, and refuses those of catalogs.
    extensions.injectHintResolutionRule(new AbstractFunction1<>() {
      @Override
      public NearestFunction apply(org.apache.spark.sql.SparkSession session) {
        return new NearestFunction(session);
      }
    });
    return BoxedUnit.UNIT;
  }
}
