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
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The Python process that answers the requests of this JVM. There is one for each Python that the catalogs of the JVM
 * use, and for each set of packages that drivers sent here. It is started with the first request and ends with the JVM,
 * because its standard input does.
 */
final class Gateway {
  static final int PROTOCOL = 1;
  private static final Map<String, Gateway> RUNNING = new HashMap<>();
  /** The path of a Unix socket has at most 107 bytes. */
  private static final int LONGEST_FOLDER = 90;
  /** How long a process that does not answer may take to end. */
  private static final int END_SECONDS = 5;
  /**
   * How long the process of a Connect session stays without work. Each session has its own class loader, and so its own
   * process, which would otherwise stay as long as the server.
   */
  private static final int IDLE_SECONDS = 600;

  private static final String PROGRAM = "from pyspark_anabranch import serve_gateway; serve_gateway()";

  private final Process process;
  private final Path socket;
  private final ErrorOutput errors;

  private Gateway(String python, List<Path> packages, int idleSeconds) throws IOException {
    Path folder = makeFolder();
    socket = folder.resolve("socket");
    socket.toFile().deleteOnExit();
    ProcessBuilder builder = new ProcessBuilder(
        python, "-c", PROGRAM, socket.toString(), String.valueOf(idleSeconds));
    String shipped = copy(packages, folder);
    if (!shipped.isEmpty()) {
      builder.environment().merge("PYTHONPATH", shipped, (given, added) -> added + File.pathSeparator + given);
    }
    process = startProcess(builder, python);
    errors = ErrorOutput.of(process);
    try {
      awaitReady(python);
      checkProtocol();
    } catch (IOException | RuntimeException e) {
      process.destroyForcibly(); // nothing refers to it, so that nothing else would end it before the JVM ends
      throw e;
    }
  }

  /** Connect to the process for these settings. One that has ended, or ends just now, is replaced. */
  static Connection connect(Settings settings) throws IOException {
    Gateway gateway = of(settings);
    try {
      return gateway.connect().closeWhenCancelled();
    } catch (ClosedByInterruptException e) {
      throw e; // the task was cancelled
    } catch (IOException e) {
      if (gateway.isUsable() && !gateway.ends()) {
        throw e;
      }
      return of(settings).connect().closeWhenCancelled();
    }
  }

  private static Gateway of(Settings settings) throws IOException {
    List<Path> packages = ShippedPackages.find(settings.artifacts);
    // Packages are named after their content, so that two sessions with the same release share a process.
    String key = packages.stream().map(path -> path.getFileName().toString()).sorted().toList() + settings.pythonHere();
    synchronized (RUNNING) {
      Gateway found = RUNNING.get(key);
      if (found == null || !found.isUsable()) {
        found = new Gateway(settings.pythonHere(), packages, settings.artifacts == null ? 0 : IDLE_SECONDS);
        RUNNING.put(key, found);
      }
      return found;
    }
  }

  /** A process that ends by itself removes its socket first. */
  private boolean isUsable() {
    return process.isAlive() && Files.exists(socket);
  }

  private boolean ends() {
    try {
      return process.waitFor(END_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  /** Send a request that is answered with one JSON object. */
  static JsonNode call(Settings settings, ObjectNode request) {
    try (Connection connection = Gateway.connect(settings)) {
      connection.sendJson(request);
      return connection.readJson();
    } catch (IOException e) {
      throw new UncheckedIOException("the Anabranch process of this JVM did not answer", e);
    }
  }

  /** Send a request, for callers that handle errors of the gateway. */
  static JsonNode tryCall(Settings settings, ObjectNode request) throws AnabranchException {
    return call(settings, request);
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

  private Connection connect() throws IOException {
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
      throw new IOException("'" + python + "' did not start the gateway of the catalog: install anabranch[spark] "
          + "in that Python, or set PYSPARK_PYTHON or spark.pyspark.python to one that has it. It wrote:\n"
          + errors.lastLines());
    }
  }

  private void checkProtocol() throws IOException {
    try (Connection connection = connect()) {
      ObjectNode hello = Json.object();
      hello.put("op", "hello");
      connection.sendJson(hello);
      int found = connection.readJson().get("protocol").asInt();
      if (found != PROTOCOL) {
        throw new IOException("the jar speaks protocol " + PROTOCOL + " and the installed anabranch " + found
            + ": use the jar of the installed release");
      }
    }
  }

  /** A folder that only this user may enter, so that only this user can connect to a socket in it. */
  private static Path makeFolder() throws IOException {
    Path folder = Files.createTempDirectory("anabranch-");
    if (folder.toString().getBytes(StandardCharsets.UTF_8).length > LONGEST_FOLDER) {
      // The temporary folder of a YARN container, for example.
      Files.delete(folder);
      folder = Files.createTempDirectory(Path.of("/tmp"), "anabranch-");
    }
    folder.toFile().deleteOnExit();
    return folder;
  }

  /** Copy packages: those of a session are deleted with it, and Python reads them until it ends. */
  private static String copy(List<Path> packages, Path folder) throws IOException {
    List<String> copies = new ArrayList<>();
    for (Path file : packages) {
      Path copied = Files.copy(file, folder.resolve(file.getFileName()));
      copied.toFile().deleteOnExit();
      copies.add(copied.toString());
    }
    return String.join(File.pathSeparator, copies);
  }
}
