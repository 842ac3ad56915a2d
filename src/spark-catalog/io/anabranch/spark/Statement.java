package io.anabranch.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The SQL statement that is being run, which becomes the message of its commit. */
final class Statement {
  private static final int MOST_CHARACTERS = 2_000;

  private Statement() {}

  /** The text of the statement, or the given words where the work did not begin as SQL. */
  static String current(String otherwise) {
    String text = textOf(CurrentOrigin.get());
    if (text == null) {
      text = textOfExecution();
    }
    if (text == null) {
      return otherwise;
    }
    return text.length() <= MOST_CHARACTERS ? text : text.substring(0, MOST_CHARACTERS) + " ...";
  }

  private static String textOfExecution() {
    String id = SparkContext.getOrCreate().getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
    if (id == null) {
      return null;
    }
    QueryExecution execution = SQLExecution.getQueryExecution(Long.parseLong(id));
    return execution == null ? null : textOf(execution.logical());
  }

  /** The text of the first node that has one: some nodes that the analysis makes have none. */
  private static String textOf(TreeNode<?> plan) {
    String text = textOf(plan.origin());
    List<TreeNode<?>> parts = new ArrayList<>();
    CollectionConverters.asJava(plan.children()).forEach(child -> parts.add((TreeNode<?>) child));
    // The query of CREATE TABLE AS SELECT is among the inner children.
    CollectionConverters.asJava(plan.innerChildren()).forEach(child -> parts.add((TreeNode<?>) child));
    for (TreeNode<?> part : parts) {
      text = text == null ? textOf(part) : text;
    }
    return text;
  }

  private static String textOf(Origin origin) {
    Option<String> text = origin.sqlText();
    return text.isDefined() && !text.get().isBlank() ? text.get().strip() : null;
  }
}
