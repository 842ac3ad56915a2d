package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The options of a write: the message and the metadata of its commit. */
final class WriteOptions {
  private static final Set<String> KNOWN = Set.of("message", "metadata");

  private WriteOptions() {}

  /** Add the options to a request. The statement is the message unless an option gives another. */
  static void put(ObjectNode request, CaseInsensitiveStringMap options, String statement) {
    for (String name : options.keySet()) {
      if (!KNOWN.contains(name)) {
        throw new IllegalArgumentException(
            "the option '" + name + "' is not known here: use message and metadata; the branch is part of the name");
      }
    }
    request.put("message", options.getOrDefault("message", statement));
    if (options.containsKey("metadata")) {
      request.set("metadata", Json.parse(options.get("metadata")));
    }
  }
}
