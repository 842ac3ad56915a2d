"""Tables that options name, as in `format("anabranch")`, for the scan of the catalog."""

import json
from collections.abc import Mapping
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.format.splits import selected_schema
from anabranch.ids import MAIN
from anabranch.repo.repository import Repository
from anabranch.spark.gateway.requests import Request
from anabranch.spark.gateway.scans import size_of
from anabranch.spark.gateway.values import version_ref_to_json
from anabranch.spark.options import ReadOptions, asks_for_changes, with_lent_options
from anabranch.spark.reader import find_version_ref
from anabranch.spark.types import shown_schema

__all__ = ["load_source"]


def load_source(request: Request) -> dict[str, Any]:
    """Answer the table that options name, pinned, or that they do not ask for its rows."""
    if asks_for_changes(request["options"]):
        return {"reads_rows": False}
    reading = ReadOptions.parse(with_lent_options(request["options"], request["lent"]))
    location = reading.location
    repository = request.open(location.repository, location.storage_options)
    version_ref = find_version_ref(reading, repository)
    selection = reading.selection
    return {
        "reads_rows": True,
        "repo": location.repository,
        "storage_options": dict(location.storage_options),
        "key": location.key,
        "branch": _find_branch(repository, request["options"]),
        "commit": "",
        "version_ref": version_ref_to_json(version_ref),
        "rows": version_ref.open().count_rows(),
        "bytes": size_of(version_ref),
        # Not reported to Spark, which would show its columns as not nullable, unlike the source in Python.
        "primary_key": [],
        "properties": {},
        "schema": json.dumps(shown_schema(selected_schema(version_ref, selection)).jsonValue()),
        # It was checked with the schema. A comment in it ends with its line.
        "filter": None if selection.filter is None else f"({selection.filter}\n)",
        "bases": list(selection.bases),
    }


def _find_branch(repository: Repository, options: Mapping[str, str]) -> str | None:
    """Return the branch to which rows can be added: None if the options choose some rows, or a state of the past."""
    if not {"columns", "where", "bases", "version_ref"}.isdisjoint(options):
        return None
    try:
        return repository.branch_get(options.get("ref", MAIN)).name
    except AnabranchError:
        return None  # a tag, a commit or an expression such as 'dev~1'
