package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.charset.StandardCharsets;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskInterruptListener;

/**
 * One request to the gateway and its answer, as frames over a Unix socket. The frames are described in
 * {@code anabranch/spark/gateway/requests.py}. Closing the connection cancels the request.
 */
final class Connection implements Closeable {
  private static final int HEADER = 5;

  private final SocketChannel channel;
  private final ByteBuffer header = ByteBuffer.allocateDirect(HEADER);

  Connection(SocketChannel channel) {
    this.channel = channel;
  }

  /**
   * Close the connection when the task of this thread is cancelled. Spark interrupts the thread only if it is asked to:
   * otherwise a task that waits for the gateway would run until the gateway answers.
   */
  Connection closeWhenCancelled() {
    TaskContext task = TaskContext.get();
    if (task != null) {
      TaskInterruptListener listener = (context, reason) -> closeQuietly();
      task.addTaskInterruptListener(listener);
    }
    return this;
  }

  private void closeQuietly() {
    try {
      channel.close();
    } catch (IOException e) {
      // The task ends in any case.
    }
  }

  void sendJson(JsonNode request) throws IOException {
    send('J', ByteBuffer.wrap(request.toString().getBytes(StandardCharsets.UTF_8)));
  }

  JsonNode readJson() throws IOException {
    int length = readHeader('J');
    return Json.parse(readBytes(length));
  }

  /** The bytes of the Arrow stream that the answer brings. An error that the gateway reports is thrown by a read. */
  ReadableByteChannel arrowInput() {
    return new ArrowInput();
  }

  /** Where to write an Arrow stream that belongs to the request. */
  WritableByteChannel arrowOutput() {
    return new ArrowOutput();
  }

  /** End the Arrow stream that belongs to the request. */
  void sendEnd() throws IOException {
    send('Z', ByteBuffer.allocate(0));
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }

  private void send(char kind, ByteBuffer content) throws IOException {
    header.clear();
    header.put((byte) kind).putInt(content.remaining()).flip();
    ByteBuffer[] parts = {header, content};
    while (header.hasRemaining() || content.hasRemaining()) {
      channel.write(parts);
    }
  }

  /** Read the header of a frame of this kind and return the length of its content; -1 for the end of a stream. */
  private int readHeader(char expected) throws IOException {
    header.clear();
    readFully(header);
    header.flip();
    char kind = (char) header.get();
    int length = header.getInt();
    if (kind == 'E') {
      JsonNode error = Json.parse(readBytes(length));
      throw new AnabranchException(
          error.get("error").asText(), error.get("problem").asText(), error.get("hint").asText()).unchecked();
    }
    if (kind == 'Z' && expected == 'A') {
      return -1;
    }
    if (kind != expected) {
      throw new IOException("the Anabranch process sent a frame of the kind '" + kind + "'");
    }
    return length;
  }

  private byte[] readBytes(int length) throws IOException {
    ByteBuffer content = ByteBuffer.allocate(length);
    readFully(content);
    return content.array();
  }

  private void readFully(ByteBuffer buffer) throws IOException {
    while (buffer.hasRemaining()) {
      if (channel.read(buffer) < 0) {
        throw new EOFException("the Anabranch process of this JVM ended in the middle of a request");
      }
    }
  }

  /** The content of A frames as one stream of bytes. */
  private final class ArrowInput implements ReadableByteChannel {
    private int left;

    @Override
    public int read(ByteBuffer target) throws IOException {
      while (left == 0) {
        left = readHeader('A');
      }
      if (left < 0 || !target.hasRemaining()) {
        return left < 0 ? -1 : 0;
      }
      int limit = target.limit();
      target.limit(Math.min(limit, target.position() + left));
      int count = channel.read(target);
      target.limit(limit);
      if (count < 0) {
        throw new EOFException("the Anabranch process of this JVM ended in the middle of a scan");
      }
      left -= count;
      return count;
    }

    @Override
    public boolean isOpen() {
      return channel.isOpen();
    }

    @Override
    public void close() throws IOException {
      channel.close();
    }
  }

  /** A stream of bytes as A frames. */
  private final class ArrowOutput implements WritableByteChannel {
    private static final int MOST_BYTES = 1 << 24;

    @Override
    public int write(ByteBuffer source) throws IOException {
      int count = source.remaining();
      while (source.hasRemaining()) {
        int length = Math.min(source.remaining(), MOST_BYTES);
        ByteBuffer piece = source.slice(source.position(), length);
        send('A', piece);
        source.position(source.position() + length);
      }
      return count;
    }

    @Override
    public boolean isOpen() {
      return channel.isOpen();
    }

    @Override
    public void close() {
      // The answer is still to be read from the same socket.
    }
  }
}
