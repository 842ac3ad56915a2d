package io.anabranch.spark;

/**
 * An error that the gateway reported. The message has the form of the last line of a Python traceback, so that the
 * Python side finds its own error class again.
 */
public final class AnabranchException extends RuntimeException {
  private final String kind;

  AnabranchException(String kind, String problem, String hint) {
    super(hint.isEmpty() ? kind + ": " + problem : "anabranch.errors." + kind + ": " + problem + "; " + hint);
    this.kind = kind;
  }

  /** The name of the Python class, such as {@code TableNotFoundError}. */
  String kind() {
    return kind;
  }
}
