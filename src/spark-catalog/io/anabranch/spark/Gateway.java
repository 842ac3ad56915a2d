package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.SparkFiles;

/**
 * The Python process that answers the requests of this JVM. There is one for each Python that the catalogs of the JVM
 * use. It is started with the first request and ends with the JVM, because its standard input does.
 */
final class Gateway {
  static final int PROTOCOL = 1;
  private static final Map<String, Gateway> RUNNING = new HashMap<>();

  private final Process process;
  private final Path socket;

  private Gateway(String python) throws IOException {
    // Only this user may enter the folder, and so connect to the socket.
    Path folder = Files.createTempDirectory("anabranch-");
    folder.toFile().deleteOnExit();
    socket = folder.resolve("socket");
    socket.toFile().deleteOnExit();
    ProcessBuilder builder = new ProcessBuilder(python, "-m", "pyspark_anabranch.gateway", socket.toString());
    builder.environment().merge("PYTHONPATH", shippedPackages(), Gateway::joinPaths);
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    process = startProcess(builder, python);
    awaitReady(python);
    checkProtocol();
  }

  /** The process for these settings. One that has ended is replaced. */
  static Gateway of(Settings settings) {
    synchronized (RUNNING) {
      Gateway found = RUNNING.get(settings.python);
      if (found == null || !found.process.isAlive()) {
        try {
          found = new Gateway(settings.python);
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
        RUNNING.put(settings.python, found);
      }
      return found;
    }
  }

  /** Send a request that is answered with one JSON object. */
  static JsonNode call(Settings settings, ObjectNode request) {
    try (Connection connection = Gateway.of(settings).connect()) {
      connection.sendJson(request);
      return connection.readJson();
    } catch (IOException e) {
      throw new UncheckedIOException("the Anabranch process of this JVM did not answer", e);
    }
  }

  /** A request with the arguments that every request has. */
  static ObjectNode request(Settings settings, String operation) {
    ObjectNode request = Json.object();
    request.put("op", operation);
    request.put("repo", settings.repository);
    request.put("actor", settings.actor);
    request.set("storage_options", Json.of(settings.storageOptions()));
    return request;
  }

  Connection connect() throws IOException {
    SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    try {
      channel.connect(UnixDomainSocketAddress.of(socket));
      return new Connection(channel);
    } catch (IOException e) {
      channel.close();
      throw e;
    }
  }

  private static Process startProcess(ProcessBuilder builder, String python) {
    try {
      return builder.start();
    } catch (IOException e) {
      throw new UncheckedIOException("Python cannot be started as '" + python
          + "': set PYSPARK_PYTHON or spark.pyspark.python to a Python that has anabranch", e);
    }
  }

  private void awaitReady(String python) throws IOException {
    BufferedReader output =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    if (!"ready".equals(output.readLine())) {
      process.destroyForcibly();
      throw new IOException("'" + python + " -m pyspark_anabranch.gateway' did not start: install anabranch[spark] "
          + "in that Python, or set PYSPARK_PYTHON or spark.pyspark.python to one that has it");
    }
  }

  private void checkProtocol() throws IOException {
    try (Connection connection = connect()) {
      ObjectNode hello = Json.object();
      hello.put("op", "hello");
      connection.sendJson(hello);
      int found = connection.readJson().get("protocol").asInt();
      if (found != PROTOCOL) {
        process.destroyForcibly();
        throw new IOException("the jar speaks protocol " + PROTOCOL + " and the installed anabranch " + found
            + ": use the jar of the installed release");
      }
    }
  }

  /** The packages that the driver sent to this machine with {@code addPyFile}, as a PYTHONPATH. */
  private static String shippedPackages() {
    List<String> found = new ArrayList<>();
    File[] files = new File(SparkFiles.getRootDirectory()).listFiles();
    for (File file : Objects.requireNonNullElse(files, new File[0])) {
      if (file.getName().startsWith("anabranch-") && file.getName().endsWith(".zip")) {
        found.add(file.getPath());
      }
    }
    return String.join(File.pathSeparator, found);
  }

  private static String joinPaths(String given, String shipped) {
    return shipped.isEmpty() ? given : shipped + File.pathSeparator + given;
  }
}
