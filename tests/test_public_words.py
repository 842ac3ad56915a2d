"""One word for one thing, in every signature of the public API."""

import inspect
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from scripts.reference import public

import anabranch as ab
from anabranch.storage.requests import OnProgress

# Words that an argument of the public API must not have, and the word that it has instead.
SYNONYMS = {
    "key": "table",
    "table_key": "table",
    "table_name": "table",
    "table_keys": "tables",
    "column_names": "columns",
    "filter": "where",
    "predicate": "where",
    "condition": "where",
    "at": "ref",
    "state": "ref",
    "revision": "ref",
    "branch_name": "branch",
    "repository": "repo",
    "given": "spark",
    "session": "spark",
    "callback": "progress",
    "on_progress": "progress",
    "on_step": "progress",
    "on_value": "progress",
}


# Every word that a parameter of the public API has. Before you add one, look for the word that means the same.
WORDS = {
    word
    for line in (
        "actor after again allow_destructive assignments base bases batch_rows before branch by catalog cells",
        "changes check_keys checks clone_id clones column columns commit commit_id config csv data deleted",
        "description desired dry_run durability end engine exclude expected_head expected_source expected_version",
        "expires_in ff_only folder force",
        "format fragment_id fragments function grace holder id include_decided incremental inputs internal into",
        "is_dataset_root jobs k keep_decisions keep_last keep_newer_than keys kind limit link mapping master",
        "message metadata mode n name names new notes offset on_bad on_duplicate only onto overwrite parameter",
        "parameters params path prefix primary_key progress prune purge ref refs repair replace repo resolutions",
        "resolvers retries rows run_id schema select shallow since single_file source source_branch source_version",
        "spark sql squash start step storage_options strategy table tables tag target target_branch",
        "target_rows_per_fragment target_storage_options timeout to type unset until uri vector version where",
        "with_style write",
    )
    for word in line.split()
}

# What the engines, the service and pipelines need is behind `EngineAccess`, `table_writes` and functions of modules.
PLUMBING = {
    "append_fragments",
    "change_feed",
    "change_tables",
    "create_tables",
    "keep_files",
    "of_source",
    "overwrite_fragments",
    "prepare",
    "prepare_new",
    "publish_batch",
    "published_snapshot_of",
    "replace_fragments",
    "snapshot_at_begin",
    "stream_publish",
    "transaction_once",
    "upsert_fragments",
    "warn",
    "warn_if_dropped",
    "with_checks",
    "working",
}

FUNCTIONS = public.public_functions()
CLASSES = public.public_values()


def public_callables() -> Iterator[tuple[str, Any]]:
    """All functions and methods of the public API, and of the values that they return."""
    yield from FUNCTIONS.items()
    for each in CLASSES:
        for name, member in public.public_members(each):
            if inspect.isfunction(member):
                yield f"{public.exported_name(each)}.{name}", member


CALLABLES = dict(public_callables())


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(function).parameters)
    found.pop("self", None)
    found.pop("cls", None)
    return found


def test_the_walk_finds_the_public_api() -> None:
    assert len(CALLABLES) > 150
    assert len(CLASSES) > 90
    assert {"ab.open", "Repository.load", "Transaction.append", "Table.nearest", "SchemaPlan.of_table"} <= {*CALLABLES}


def test_parameters_have_the_word_of_their_thing() -> None:
    words = [(name, word) for name, function in CALLABLES.items() for word in parameters_of(function)]
    assert [f"{name}: {word} -> {SYNONYMS[word]}" for name, word in words if word in SYNONYMS] == []


def test_progress_is_reported_in_one_way() -> None:
    """By a callback named `progress` that takes an `ab.Progress`, and in no other."""
    callbacks = {}
    for name, function in CALLABLES.items():
        for word, parameter in parameters_of(function).items():
            if "Progress" in str(parameter.annotation) or word == "progress":
                callbacks[f"{name}({word})"] = parameter
    assert len(callbacks) > 10
    assert {name.partition("(")[2] for name in callbacks} == {"progress)"}
    assert {parameter.annotation for parameter in callbacks.values()} == {OnProgress | None}
    assert {(parameter.kind, parameter.default) for parameter in callbacks.values()} == {
        (inspect.Parameter.KEYWORD_ONLY, None)
    }


def test_no_method_is_for_engines_alone() -> None:
    assert [name for name in CALLABLES if name.rpartition(".")[2] in PLUMBING] == []
    # Three properties are left, which show how a table is stored. They are not documented for users.
    assert {"Dataset.home", "Snapshot.entries", "Table.version_ref"} == public.FOR_ENGINES


def test_every_class_in_a_signature_is_exported() -> None:
    """A caller can make or name every value that a method takes."""
    exported = {id(getattr(module, name)) for module in (ab, ab.types) for name in dir(module)}
    unknown = [
        f"{name}({word}): {each.__name__}"
        for name, function in CALLABLES.items()
        for word, parameter in parameters_of(function).items()
        for each in public.classes_in(parameter.annotation, function.__module__)
        if each.__module__.startswith("anabranch.") and id(each) not in exported
    ]
    assert unknown == []


def test_enums_are_in_lower_case() -> None:
    exported = [getattr(module, name) for module in (ab, ab.types) for name in dir(module) if name != "__version__"]
    enums = [each for each in exported if inspect.isclass(each) and issubclass(each, Enum)]
    assert len(enums) > 15
    assert [member for each in enums for member in each if member.value != member.value.lower()] == []


def test_methods_list_in_lists_and_values_hold_tuples() -> None:
    """A list that a call returns belongs to the caller; what a value holds cannot be changed."""
    returned = {name: inspect.signature(function).return_annotation for name, function in CALLABLES.items()}
    held: dict[str, Any] = {}
    for each in CLASSES:
        name = public.exported_name(each)
        held |= {f"{name}.{field}": annotation for field, annotation in public.public_fields(each)}
        properties = [(label, member) for label, member in public.public_members(each) if isinstance(member, property)]
        for label, member in properties:
            held[f"{name}.{label}"] = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]
    assert [name for name, annotation in returned.items() if is_sequence(annotation, tuple)] == []
    assert [name for name, annotation in held.items() if is_sequence(annotation, list)] == []


def is_sequence(annotation: Any, kind: type) -> bool:
    """Whether an annotation is a list, or a tuple of any length."""
    if isinstance(annotation, str):
        return annotation.startswith(f"{kind.__name__}[") and (kind is list or annotation.endswith("...]"))
    origin, arguments = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if not (inspect.isclass(origin) and issubclass(origin, kind)):
        return False
    return kind is list or origin is not tuple or Ellipsis in arguments


def test_parameters_have_known_words() -> None:
    words = {word for function in CALLABLES.values() for word in parameters_of(function)}
    assert not words - WORDS, "use the word that another method has for it, or add the new one to WORDS"
    assert not WORDS - words, "no method has these any more"


@pytest.mark.parametrize(
    ("word", "kinds"),
    [
        ("table", {"str", "str | None"}),
        ("tables", {"Sequence[str] | None"}),
        ("branch", {"str", "str | None"}),
        ("where", {"str | None"}),
        ("columns", {"Sequence[str]", "Sequence[str] | None"}),
        ("ref", {"str", "str | None", "int | str | tuple[str | None, int | None] | None"}),
        ("storage_options", {"Mapping[str, str] | None"}),
        ("metadata", {"Mapping[str, str]", "Mapping[str, str] | None"}),
        ("dry_run", {"bool"}),
    ],
)
def test_one_word_has_one_type(word: str, kinds: set[str]) -> None:
    other = {"Layout.of_branch", "Transaction.add_columns", "Transaction.annotate"}  # None is the root; more by column
    found = {}
    for name, function in CALLABLES.items():
        if word in parameters_of(function) and name not in other:
            annotation = parameters_of(function)[word].annotation
            text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            found[name] = text.replace("collections.abc.", "")
    assert len(found) > 2
    assert {name: kind for name, kind in found.items() if kind not in kinds} == {}


@pytest.fixture
def shop(tmp_path: Path) -> ab.Repository:
    repo = ab.init(tmp_path / "shop", actor="ada")
    orders = pa.table({"id": [1, 2, 3], "amount": [12.5, 8.0, 30.0]})
    with repo.transaction(message="Load the shop") as tx:
        tx.create_table("shop.orders", orders.schema, primary_key=["id"])
        tx.append("shop.orders", orders)
    return repo


def test_tables_are_named_by_keyword(shop: ab.Repository) -> None:
    """Also where the table is the first argument and most callers pass it by position."""
    table = "shop.orders"
    assert shop.table(table=table).key == table
    assert shop.entity_at(table=table, id=1) == shop.entity_history(table=table, id=1)[0].after
    assert [step.diff.key for step in shop.changes(table=table)] == [table]
    assert shop.lineage(table=table).table == table
    with shop.transaction() as tx:
        tx.create_table(table="shop.new", schema=shop[table].schema)
        tx.append(table="shop.new", data=shop[table])
        tx.rename_table(table="shop.new", new="shop.newer")
        tx.drop_table(table="shop.newer")
        assert tx.delete(table=table, where="id = 3") == 1
