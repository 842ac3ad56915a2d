package io.anabranch.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** A procedure of the gateway, which describes its parameters and its result. All procedures use this class. */
final class LakeProcedure implements UnboundProcedure, BoundProcedure {
  private final Settings settings;
  private final String name;
  private final String description;
  private final StructType columns;
  private final ProcedureParameter[] parameters;

  private LakeProcedure(Settings settings, JsonNode found) {
    this.settings = settings;
    name = found.get("name").asText();
    description = found.get("description").asText();
    columns = (StructType) DataType.fromJson(found.get("schema").asText());
    List<ProcedureParameter> all = new ArrayList<>();
    found.get("parameters").forEach(parameter -> all.add(parameter(parameter)));
    parameters = all.toArray(new ProcedureParameter[0]);
  }

  /** All procedures that the gateway has. */
  static List<LakeProcedure> list(Settings settings) {
    List<LakeProcedure> all = new ArrayList<>();
    JsonNode answer = Gateway.call(settings, Gateway.request(settings, "list_procedures"));
    answer.get("procedures").forEach(found -> all.add(new LakeProcedure(settings, found)));
    return all;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String description() {
    return description;
  }

  @Override
  public BoundProcedure bind(StructType types) {
    return this;
  }

  @Override
  public ProcedureParameter[] parameters() {
    return parameters.clone();
  }

  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public Iterator<Scan> call(InternalRow input) {
    ObjectNode request = Gateway.request(settings, "call_procedure");
    request.put("name", name);
    request.put("branch", settings.branch());
    ObjectNode arguments = request.putObject("arguments");
    for (int n = 0; n < parameters.length; n++) {
      DataType type = parameters[n].dataType();
      arguments.set(parameters[n].name(), ArgumentJson.of(input.isNullAt(n) ? null : input.get(n, type)));
    }
    Scan answer = new AnswerScan(name, columns, AnswerScan.readRows(settings, request, columns));
    return List.of(answer).iterator();
  }

  private static ProcedureParameter parameter(JsonNode found) {
    DataType type = DataType.fromDDL(found.get("type").asText());
    ProcedureParameter.Builder builder = ProcedureParameter.in(found.get("name").asText(), type);
    return found.get("required").asBoolean() ? builder.build() : builder.defaultValue("NULL").build();
  }
}
