package io.anabranch.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/** Filters that a join sends while a query runs: the values of the other side, which may be very many. */
final class RuntimeFilters {
  private static final int MOST_VALUES = 2_000;

  private RuntimeFilters() {}

  /** Replace long lists of values by their range. */
  static Predicate[] shorten(Predicate[] predicates) {
    List<Predicate> shortened = new ArrayList<>();
    for (Predicate predicate : predicates) {
      shortened.add(isLong(predicate) ? toRange(predicate) : predicate);
    }
    return shortened.toArray(new Predicate[0]);
  }

  private static boolean isLong(Predicate predicate) {
    return "IN".equals(predicate.name()) && predicate.children().length > MOST_VALUES + 1;
  }

  private static Predicate toRange(Predicate predicate) {
    Expression[] children = predicate.children();
    LiteralValue<?> least = null;
    LiteralValue<?> greatest = null;
    for (int n = 1; n < children.length; n++) {
      if (children[n] instanceof Literal<?> literal && literal.value() instanceof Comparable<?>) {
        LiteralValue<?> value = new LiteralValue<>(literal.value(), literal.dataType());
        least = least == null || compare(value, least) < 0 ? value : least;
        greatest = greatest == null || compare(value, greatest) > 0 ? value : greatest;
      }
    }
    if (least == null) {
      return predicate;
    }
    return new Predicate("AND", new Expression[] {
      new Predicate(">=", new Expression[] {children[0], least}),
      new Predicate("<=", new Expression[] {children[0], greatest})
    });
  }

  @SuppressWarnings("unchecked")
  private static int compare(LiteralValue<?> left, LiteralValue<?> right) {
    return ((Comparable<Object>) left.value()).compareTo(right.value());
  }
}
