package io.anabranch.spark;

import org.apache.spark.package$;

/** The release of Spark that this jar is made for. Its interfaces change between minor releases. */
final class SparkVersion {
  static final String MADE_FOR = "4.3";

  private SparkVersion() {}

  static void check() {
    String running = package$.MODULE$.SPARK_VERSION();
    if (!running.startsWith(MADE_FOR + ".")) {
      throw new IllegalStateException("this jar of Anabranch is made for Spark " + MADE_FOR + " and runs in Spark "
          + running + ": use the jar of a release of Anabranch that is made for it, or PySpark " + MADE_FOR);
    }
  }
}
