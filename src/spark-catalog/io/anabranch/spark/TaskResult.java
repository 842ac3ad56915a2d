package io.anabranch.spark;

import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** What one task wrote, as the JSON that the gateway of its machine answered. */
record TaskResult(String json) implements WriterCommitMessage {}
