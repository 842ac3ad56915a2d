"""The options of commands have the names of the parameters in Python."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from scripts.reference.commands import commands

import anabranch as ab
from anabranch.format.dataset import Dataset

# The method that a command calls. Others combine several, or show what was read.
METHODS: dict[str, Callable[..., Any]] = {
    "clone create": ab.clone,
    "relocate": ab.relocate,
    "merge": ab.Repository.merge,
    "conflicts": ab.Repository.conflicts,
    "rebase": ab.Repository.rebase,
    "log": ab.Repository.list_commits,
    "diff": ab.Repository.diff,
    "lineage": ab.Repository.lineage,
    "changes": ab.Repository.changes,
    "reflog": ab.Repository.reflog,
    "redo": ab.Repository.redo,
    "undo": ab.Repository.undo,
    "revert": ab.Repository.revert,
    "cherry-pick": ab.Repository.cherry_pick,
    "reset": ab.Repository.reset,
    "load": ab.Repository.load,
    "export": ab.Repository.export,
    "compact": ab.Repository.compact,
    "sql": ab.Repository.sql,
    "cat": ab.Table.to_arrow,
    "doctor": ab.Repository.doctor,
    "gc": ab.Repository.gc,
    "storage": ab.Repository.storage_report,
    "branch create": ab.Repository.branch_create,
    "branch list": ab.Repository.branch_list,
    "branch delete": ab.Repository.branch_delete,
    "branch pull": ab.Repository.branch_pull,
    "branch protect": ab.Repository.branch_protect,
    "tag create": ab.Repository.tag_create,
    "pipeline run": ab.Pipeline.run,
    "pipeline plan": ab.Pipeline.plan,
    "pipeline backfill": ab.Pipeline.backfill,
    "run list": ab.Repository.run_list,
    "table list": ab.Repository.tables,
    "table adopt": ab.Repository.adopt,
    "table settle": ab.Repository.settle,
    "schema show": ab.Repository.schema_show,
    "schema plan": ab.Repository.schema_plan,
    "schema apply": ab.Repository.schema_apply,
    "dataset move": Dataset.move_fragments,
    "dataset cleanup": Dataset.cleanup,
    "dataset relocate": Dataset.relocate,
    "dataset doctor": Dataset.doctor,
    "dataset branch create": Dataset.branch_create,
    "dataset branch delete": Dataset.branch_delete,
    "dataset branch metadata": Dataset.branch_set_metadata,
    "dataset tag create": Dataset.tag_create,
    "dataset tag update": Dataset.tag_update,
    "dataset tag metadata": Dataset.tag_set_metadata,
    "dataset base add": Dataset.base_add,
    "dataset base remove": Dataset.base_remove,
    "dataset clone create": Dataset.shallow_clone,
    "dataset clone drop": Dataset.clone_drop,
}
# Those of every command, and those that choose what is shown of a result.
OF_EVERY_COMMAND = {"repo", "actor", "storage_option", "json", "help", "branch", "ref"}
OF_OUTPUT = {
    "html",
    "oneline",
    "author",
    "since",
    "steps",
    "stat",
    "rows",
    "schema",
    "csv",
    "wide",
    "svg",
    "graph",
    "limit",
    "offset",
    "table",
    "exit_code",
    "list",
}
# Documented in docs/cli.md: the option, and what it is in Python.
EXCEPTIONS = {
    "from": "source",
    "live": "mode",
    "deep": None,  # shallow=False, or another method
    "no_header": "header",
    "off": None,  # another method
    "resolve": "resolvers",
    "type": "schema",
    "param": "parameters",
    "master": "spark",
    "conf": "spark",
    "reproduce": None,  # another method
    "set": "metadata",
    "no_ff": None,  # the default
    "dataset_root": "is_dataset_root",
}


def test_every_command_is_compared_or_has_no_options_of_its_own() -> None:
    known = {typed.removeprefix("anabranch ") for typed in commands()}
    assert {*METHODS} <= known


@pytest.mark.parametrize("command", METHODS)
def test_options_have_the_names_of_parameters(command: str) -> None:
    taken = {*inspect.signature(METHODS[command]).parameters}
    if "csv" in taken:  # the options of a CSV file are fields of one value
        taken |= {*inspect.signature(ab.CsvOptions).parameters}
    unknown = []
    for parameter in commands()[f"anabranch {command}"].params:
        if parameter.param_type_name != "option" or parameter.hidden:
            continue
        word = parameter.opts[0].lstrip("-").replace("-", "_")
        names = {word, f"{word}s", EXCEPTIONS.get(word, word)}
        if not (names & taken or word in OF_EVERY_COMMAND | OF_OUTPUT or EXCEPTIONS.get(word, word) is None):
            unknown.append(word)
    # A dry run of a pipeline is its plan.
    assert set(unknown) <= ({"dry_run"} if command == "pipeline run" else set())


def test_index_options_are_those_of_vector_options() -> None:
    options = {parameter.opts[0] for parameter in commands()["anabranch index"].params}
    assert {"--metric", "--num-partitions", "--num-sub-vectors"} <= options
