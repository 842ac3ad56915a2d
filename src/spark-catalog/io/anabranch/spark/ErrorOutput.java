package io.anabranch.spark;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;

/** What the process writes to its standard error: it goes to that of the JVM, and the last lines are kept. */
final class ErrorOutput extends Thread {
  private static final int MOST_LINES = 20;
  private static final int END_SECONDS = 5;

  private final BufferedReader input;
  private final Deque<String> lines = new ArrayDeque<>();

  private ErrorOutput(Process process) {
    super("anabranch gateway errors");
    input = new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8));
  }

  static ErrorOutput of(Process process) {
    ErrorOutput output = new ErrorOutput(process);
    output.setDaemon(true);
    output.start();
    return output;
  }

  @Override
  public void run() {
    try {
      for (String line = input.readLine(); line != null; line = input.readLine()) {
        System.err.println(line);
        keep(line);
      }
    } catch (IOException e) {
      // The process has ended.
    }
  }

  private synchronized void keep(String line) {
    lines.add(line);
    if (lines.size() > MOST_LINES) {
      lines.remove();
    }
  }

  /** The last lines of a process that ends. */
  String lastLines() {
    try {
      join(TimeUnit.SECONDS.toMillis(END_SECONDS));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    synchronized (this) {
      return String.join("\n", lines);
    }
  }
}
