package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.SparkContext$;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The settings of one catalog: {@code spark.sql.catalog.NAME.*}. They travel with each task. */
final class Settings implements Serializable {
  private static final String SECRET = "secret.";
  private static final String MAIN = "main";

  final String catalog;
  final String repository;
  final String actor;
  /** The session that sent the packages to use, on a Connect server; else null. */
  final String artifacts;
  private final String python;
  private final String driverPython;
  private final HashMap<String, String> storageOptions = new HashMap<>();

  Settings(String catalog, CaseInsensitiveStringMap options) {
    this.catalog = catalog;
    repository = options.get("repo");
    if (repository == null) {
      throw new IllegalArgumentException("the catalog '" + catalog + "' names no repository: set "
          + "spark.sql.catalog." + catalog + ".repo to a folder or a URI");
    }
    actor = options.get("actor");
    artifacts = ShippedPackages.currentArtifacts();
    python = options.containsKey("python") ? options.get("python") : defaultPython();
    driverPython = options.getOrDefault("driverPython", python);
    for (Map.Entry<String, String> option : options.asCaseSensitiveMap().entrySet()) {
      if (option.getKey().toLowerCase(Locale.ROOT).startsWith(SECRET)) {
        storageOptions.put(option.getKey().substring(SECRET.length()), option.getValue());
      }
    }
    JsonNode lent = storageOptions.isEmpty() ? AnabranchSource.lentOptions().get(repository) : null;
    if (lent != null) {
      lent.properties().forEach(option -> storageOptions.put(option.getKey(), option.getValue().asText()));
    }
  }

  private Settings(String repository, Map<String, String> storageOptions) {
    catalog = null;
    this.repository = repository;
    actor = null;
    artifacts = ShippedPackages.currentArtifacts();
    python = defaultPython();
    driverPython = python;
    this.storageOptions.putAll(storageOptions);
  }

  /** The settings for a table that options name, and that is in no catalog. */
  static Settings ofSource(String repository, Map<String, String> storageOptions) {
    return new Settings(repository, storageOptions);
  }

  /** The branch of table names that do not name one. SET may change it during a session. */
  String branch() {
    return SQLConf.get().getConfString("spark.sql.catalog." + catalog + ".branch", MAIN);
  }

  Map<String, String> storageOptions() {
    return storageOptions;
  }

  /** The Python to use in this JVM. That of the executors may be at a path that the driver does not have. */
  String pythonHere() {
    SparkEnv environment = SparkEnv.get();
    boolean isDriver = environment != null && SparkContext$.MODULE$.DRIVER_IDENTIFIER().equals(environment.executorId());
    return isDriver ? driverPython : python;
  }

  /** The Python that PySpark's own workers run with. */
  private static String defaultPython() {
    String configured = SparkEnv.get() == null ? null : SparkEnv.get().conf().get("spark.pyspark.python", null);
    if (configured != null) {
      return configured;
    }
    String variable = System.getenv("PYSPARK_PYTHON");
    return variable == null ? "python3" : variable;
  }
}
