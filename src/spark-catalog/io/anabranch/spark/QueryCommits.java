package io.anabranch.spark;

import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;

/**
 * The commits that the current query reads, by ref. Spark loads the tables of a query one by one; without this, a commit
 * in between would show in some of them. Spark analyses a query in one thread and in one context.
 */
final class QueryCommits {
  private final ThreadLocal<Query> query = new ThreadLocal<>();

  private record Query(WeakReference<Object> context, Map<String, String> commits) {}

  /** The commits of the query that this thread analyses. What is added is seen by the query's other tables. */
  Map<String, String> current() {
    AnalysisContext context = AnalysisContext.get();
    if (context.isDefault()) {
      return new HashMap<>(); // no query is being analysed
    }
    // The cache of relations is made for each query, and shared by the contexts of its views.
    Object identity = context.relationCache();
    Query known = query.get();
    if (known == null || known.context().get() != identity) {
      known = new Query(new WeakReference<>(identity), new HashMap<>());
      query.set(known);
    }
    return known.commits();
  }
}
