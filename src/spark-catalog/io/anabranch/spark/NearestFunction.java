package io.anabranch.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SessionState;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * The table function {@code lake.nearest('bucket.table', 'column', array(...), 10)}. Spark lets no catalog have table
 * functions, so each call is replaced by the metadata table {@code lake.bucket.table.nearest} with its arguments as
 * options.
 */
final class NearestFunction extends Rule<LogicalPlan> {
  private static final String NAME = "nearest";
  private static final DataType VECTOR = DataTypes.createArrayType(DataTypes.DoubleType);
  /** The parameters in their order, with their types. The first three are required. */
  private static final Map<String, DataType> PARAMETERS = new LinkedHashMap<>();

  static {
    PARAMETERS.put("table", DataTypes.StringType);
    PARAMETERS.put("column", DataTypes.StringType);
    PARAMETERS.put("vector", VECTOR);
    PARAMETERS.put("k", DataTypes.IntegerType);
    PARAMETERS.put("where", DataTypes.StringType);
    PARAMETERS.put("ref", DataTypes.StringType);
  }

  private static final int REQUIRED = 3;
  private static final String USAGE =
      "write nearest('bucket.table', 'column', array(0.1, 0.2), 10), or name the arguments, as in k => 10: they are "
          + String.join(", ", PARAMETERS.keySet());

  private static final String CONSTANTS = "use constants and functions of them, and run a query for each vector";

  private final org.apache.spark.sql.classic.SparkSession session;

  NearestFunction(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.resolveOperators(new AbstractPartialFunction<>() {
      @Override
      public boolean isDefinedAt(LogicalPlan node) {
        return node instanceof UnresolvedTableValuedFunction call && catalogOf(call) != null;
      }

      @Override
      public LogicalPlan apply(LogicalPlan node) {
        UnresolvedTableValuedFunction call = (UnresolvedTableValuedFunction) node;
        return relation(catalogOf(call), arguments(call));
      }
    });
  }

  /** The name of the catalog whose function is called, or null for another function. */
  private String catalogOf(UnresolvedTableValuedFunction call) {
    List<String> parts = CollectionConverters.asJava(call.name());
    if (!parts.get(parts.size() - 1).equalsIgnoreCase(NAME) || parts.size() > 2) {
      return null;
    }
    CatalogManager catalogs = session.sessionState().catalogManager();
    String catalog = parts.size() == 2 ? parts.get(0) : catalogs.currentCatalog().name();
    String implementation = SQLConf.get().getConfString("spark.sql.catalog." + catalog, "");
    return implementation.equals(AnabranchCatalog.class.getName()) ? catalog : null;
  }

  /** The values of the arguments by the names of their parameters. */
  private Map<String, Object> arguments(UnresolvedTableValuedFunction call) {
    List<String> names = new ArrayList<>(PARAMETERS.keySet());
    Map<String, Object> values = new HashMap<>();
    int position = 0;
    for (Expression given : CollectionConverters.asJava(call.functionArgs())) {
      boolean isNamed = given instanceof NamedArgumentExpression;
      if (!isNamed && position >= names.size()) {
        throw refuse("nearest() has more than " + names.size() + " arguments", USAGE);
      }
      String name = isNamed ? ((NamedArgumentExpression) given).key().toLowerCase(Locale.ROOT) : names.get(position++);
      if (!PARAMETERS.containsKey(name)) {
        throw refuse("nearest() has no argument '" + name + "'", USAGE);
      }
      if (values.containsKey(name)) {
        throw refuse("the argument '" + name + "' of nearest() is given twice", USAGE);
      }
      values.put(name, value(name, isNamed ? ((NamedArgumentExpression) given).value() : given));
    }
    for (String name : names.subList(0, REQUIRED)) {
      if (values.get(name) == null) {
        throw refuse("the argument '" + name + "' of nearest() is missing", USAGE);
      }
    }
    return values;
  }

  /** The value of an expression of constants. It is resolved by itself: the statement around it is not yet. */
  private Object value(String name, Expression given) {
    String text = given.sql();
    Expression resolved = resolve(name, given, text);
    if (!resolved.foldable()) {
      throw refuse("the argument '" + name + "' of nearest() is not constant: " + text,
          CONSTANTS);
    }
    DataType type = PARAMETERS.get(name);
    if (!Cast.canAnsiCast(resolved.dataType(), type)) {
      throw refuse("the argument '" + name + "' of nearest() is " + resolved.dataType().sql() + ", not " + type.sql(),
          USAGE);
    }
    return new Cast(resolved, type, Option.apply(SQLConf.get().sessionLocalTimeZone())).eval(null);
  }

  private Expression resolve(String name, Expression given, String text) {
    Seq<String> none = CollectionConverters.asScala(List.<String>of()).toSeq();
    NamedExpression named =
        new Alias(given, name, NamedExpression$.MODULE$.newExprId(), none, Option.empty(), none);
    LogicalPlan plan = new Project(CollectionConverters.asScala(List.of(named)).toSeq(), new OneRowRelation());
    SessionState state = session.sessionState();
    try {
      Project analyzed = (Project) state.executePlan(plan, state.executePlan$default$2()).analyzed();
      return ((Alias) analyzed.projectList().head()).child();
    } catch (Exception e) { // Scala declares no AnalysisException, so that Java cannot catch it by its name
      if (e instanceof AnalysisException) {
        throw refuse("the argument '" + name + "' of nearest() cannot be computed: " + text, CONSTANTS);
      }
      throw e;
    }
  }

  private LogicalPlan relation(String catalog, Map<String, Object> values) {
    List<String> parts = new ArrayList<>(List.of(catalog));
    parts.addAll(tableParts(values.get("table").toString()));
    parts.add(NAME);
    Map<String, String> options = new HashMap<>();
    options.put("column", values.get("column").toString());
    options.put("vector", vectorText((ArrayData) values.get("vector")));
    for (String name : List.of("k", "where")) {
      if (values.get(name) != null) {
        options.put(name, values.get(name).toString());
      }
    }
    LogicalPlan relation = new UnresolvedRelation(
        CollectionConverters.asScala(parts).toSeq(), new CaseInsensitiveStringMap(options), false);
    Object ref = values.get("ref");
    return ref == null ? relation : new RelationTimeTravel(relation, Option.empty(), Option.apply(ref.toString()));
  }

  private List<String> tableParts(String table) {
    try {
      return CollectionConverters.asJava(session.sessionState().sqlParser().parseMultipartIdentifier(table));
    } catch (ParseException e) {
      throw refuse("'" + table + "' is not the name of a table", "write 'bucket.table' or 'bucket.table.branch_dev'");
    }
  }

  private static String vectorText(ArrayData vector) {
    ArrayNode numbers = Json.array();
    for (int n = 0; n < vector.numElements(); n++) {
      if (vector.isNullAt(n)) {
        throw refuse("the vector of nearest() has a null at position " + n, "give a number");
      }
      numbers.add(vector.getDouble(n));
    }
    return numbers.toString();
  }

  private static RuntimeException refuse(String problem, String hint) {
    return new AnabranchException("InvalidInputError", problem, hint).unchecked();
  }
}
