"""All procedures by their names, and how the catalog lists and runs them."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.spark.gateway.procedures.branches import HISTORY, REFS
from anabranch.spark.gateway.procedures.maintenance import DATA, MAINTENANCE
from anabranch.spark.gateway.procedures.merges import MERGES
from anabranch.spark.gateway.procedures.procedure import Call, Procedure
from anabranch.spark.gateway.requests import Request
from anabranch.spark.types import as_shown, shown_columns, shown_schema

__all__ = ["PROCEDURES", "call_procedure", "list_procedures"]

PROCEDURES: Mapping[str, Procedure] = {**REFS, **HISTORY, **MERGES, **MAINTENANCE, **DATA}


def list_procedures(_: Request) -> dict[str, Any]:
    """Answer all procedures with their parameters and columns."""
    return {
        "procedures": [
            {
                "name": name,
                "description": _description(procedure),
                "schema": json.dumps(shown_schema(procedure.columns).jsonValue()),
                "parameters": [
                    {"name": each.name, "type": each.type, "required": each.is_required}
                    for each in procedure.parameters
                ],
            }
            for name, procedure in sorted(PROCEDURES.items())
        ]
    }


def _description(procedure: Procedure) -> str:
    """Return the description with the parameters: DESCRIBE PROCEDURE of Spark does not show them itself."""
    needed = [f"{each.name} {each.type}" for each in procedure.parameters if each.is_required]
    others = [f"{each.name} {each.type}" for each in procedure.parameters if not each.is_required]
    parts = [f"Arguments: {', '.join(needed)}."] if needed else []
    parts += [f"Optional: {', '.join(others)}."] if others else []
    return " ".join([procedure.description, *parts])


def call_procedure(request: Request) -> None:
    """Run a procedure and send its rows."""
    procedure = PROCEDURES[request["name"]]
    # Spark passes null for an argument that was left out, so null and left out both mean the default.
    given = {name: value for name, value in request["arguments"].items() if value is not None}
    for parameter in procedure.parameters:
        if parameter.is_required and parameter.name not in given:
            raise InvalidInputError(
                f"the argument {parameter.name!r} of the procedure {request['name']!r} is null", hint="give a value"
            )
    call = Call(repository=request.repository, branch=request["branch"], arguments=given)
    rows = pa.Table.from_pylist([dict(row) for row in procedure.run(call)], procedure.columns)
    shown = shown_columns(shown_schema(procedure.columns))
    request.send_rows(as_shown(iter(rows.to_batches()), shown), shown)
