package io.anabranch.spark;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import scala.Option;

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

  /** The text at the root of a plan, or at its first part: a rule of Spark may make the root again without it. */
  private static String textOf(LogicalPlan plan) {
    String text = textOf(plan.origin());
    return text != null || plan.children().isEmpty() ? text : textOf(plan.children().head());
  }

  private static String textOf(Origin origin) {
    Option<String> text = origin.sqlText();
    return text.isDefined() ? text.get().strip() : null;
  }
}
