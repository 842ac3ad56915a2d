"""Values of the library as JSON documents."""

import inspect
import re
from dataclasses import fields, is_dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.cli.output import COMPUTED, MEMBERS, document_of
from tests.cli.conftest import ORDERS

SOURCE = Path(ab.__file__).parent


def names_of(kind: type) -> set[str]:
    """The fields, properties and annotations of a class."""
    found = {each.name for each in fields(kind)} if is_dataclass(kind) else set()
    attributes = {name for name, value in inspect.getmembers(kind) if not name.startswith("__") and not callable(value)}
    return found | attributes | {*inspect.signature(kind).parameters}


def class_of(name: str) -> type:
    """The class of a package, such as repo.TagInfo, which is in one of its modules.

    A protobuf message of Lance may have the same name. Documents never hold one.
    """
    package, _, kind = name.partition(".")
    defined = re.compile(rf"^class {kind}\b(?!\(Message\))", re.MULTILINE)
    (path,) = [path for path in (SOURCE / package).rglob("*.py") if defined.search(path.read_text())]
    module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    found = getattr(import_module(module), kind)
    assert isinstance(found, type)
    return found


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_an_attribute_of_its_class(name: str) -> None:
    known = names_of(class_of(name))
    computed = {member.partition("=")[0] for member in MEMBERS[name].split() if member.endswith("=*")}
    assert computed == {*COMPUTED.get(name, {})}
    if name == "repo.Table":  # its attributes are set when it is made
        known |= {"entry"}
    if name == "repo.TableDiff":
        known |= {"counts", "columns"}
    for member in MEMBERS[name].split():
        own, _, attribute = member.partition("=")
        if own not in computed:
            first = (attribute or own.lstrip("*?")).partition(".")[0]
            assert first in known, member


def test_values_become_json(lake: ab.Repository) -> None:
    class Colour(StrEnum):
        RED = "red"

    commit = lake.snapshot().commit
    made = document_of({Colour.RED: (commit, None), "n": 2**70})
    assert (made["red"][0]["id"], made["red"][1], made["n"]) == (commit.graph_commit_id, None, str(2**70))
    assert document_of(lake.snapshot()[ORDERS])["rows"] == 3
