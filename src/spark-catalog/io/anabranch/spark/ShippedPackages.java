package io.anabranch.spark;

import java.io.File;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.spark.JobArtifactState;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.SparkFiles;
import scala.Option;

/** The Python packages that a driver sent to this machine with {@code addPyFile} or {@code addArtifacts}. */
final class ShippedPackages {
  private ShippedPackages() {}

  /** The id of the session whose artifacts are kept apart from those of others, as on a Connect server; else null. */
  static String currentArtifacts() {
    Option<JobArtifactState> state = JobArtifactSet$.MODULE$.getCurrentJobArtifactState();
    return state.isDefined() ? state.get().uuid() : null;
  }

  /** Zip files of Anabranch: those of the session if it sent some, else those of all sessions. */
  static List<Path> find(String artifacts) {
    File root = new File(SparkFiles.getRootDirectory());
    List<Path> own = artifacts == null ? List.of() : findIn(new File(root, artifacts));
    return own.isEmpty() ? findIn(root) : own;
  }

  private static List<Path> findIn(File folder) {
    List<Path> found = new ArrayList<>();
    for (File file : Objects.requireNonNullElse(folder.listFiles(), new File[0])) {
      if (file.getName().startsWith("anabranch-") && file.getName().endsWith(".zip")) {
        found.add(file.toPath());
      }
    }
    return found;
  }
}
