package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The options of a write: the message and the metadata of its commit, and whether rows replace those of the same key. */
final class WriteOptions {
  private static final Set<String> KNOWN = Set.of("message", "metadata", "upsert");
  /** Options of a stream that Spark itself reads and passes on. */
  private static final Set<String> STREAMING = Set.of("checkpointlocation", "queryname", "path");

  private WriteOptions() {}

  /** Add the options to a request. The statement is the message unless an option gives another. */
  static void put(ObjectNode request, CaseInsensitiveStringMap options, String statement) {
    for (String name : options.keySet()) {
      if (!KNOWN.contains(name) && !STREAMING.contains(name)) {
        throw new IllegalArgumentException("the option '" + name
            + "' is not known here: use message, metadata and upsert; the branch is part of the table's name");
      }
    }
    request.put("message", options.getOrDefault("message", statement));
    if (options.containsKey("metadata")) {
      request.set("metadata", Json.parse(options.get("metadata")));
    }
  }

  /** Whether rows replace those of the same key. An overwrite has none to replace. */
  static boolean isUpsert(CaseInsensitiveStringMap options, String mode) {
    boolean isUpsert = options.getBoolean("upsert", false);
    if (isUpsert && !mode.equals("append")) {
      throw new IllegalArgumentException("an upsert keeps the other rows: leave 'upsert' out, or append");
    }
    return isUpsert;
  }
}
