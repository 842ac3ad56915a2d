"""The reference matches the code: every command, every endpoint, every public function and class."""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from scripts.reference import pages, public
from scripts.reference.commands import commands, write_commands
from scripts.reference.routes import routes, write_routes

import anabranch as ab
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return pages.written()


@pytest.mark.parametrize("page", ["api.md", "cli.md", "http.md"])
def test_a_page_matches_the_code(written: dict[str, str], page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == written[page], "run python -m scripts.reference"


def test_every_command_is_explained_with_an_example() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    found = commands()
    assert len(found) > 70
    for typed, command in found.items():
        assert command.help, typed
        assert "Example" in (command.epilog or ""), typed
        assert f"\n### `{typed}`\n" in page, typed
        assert all(parameter.help for parameter in command.params), typed


def test_examples_of_commands_are_commands() -> None:
    """Of each example the words name a command, and its options are options of that command."""
    for typed, command in commands().items():
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for line in command.epilog.splitlines()[2:]:
            example = line.strip()
            # A group alone lists.
            assert example.startswith((typed, typed.removesuffix(" list"))), example
            plain = re.sub(r"'[^']*'|\"[^\"]*\"", "", example)
            assert set(re.findall(r"(?<=\s)--?[a-z][\w-]*", plain)) <= known, example


def test_arguments_that_can_be_repeated_have_three_dots() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert "anabranch load TABLE SOURCE... [OPTIONS]" in page
    assert "anabranch compact [TABLE...] [OPTIONS]" in page
    assert "| `TABLE...` |" in page
    assert "...." not in page


def test_every_endpoint_is_explained() -> None:
    page = (DOCS / "http.md").read_text(encoding="utf-8")
    found = routes()
    assert len(found) > 50
    for method, path, reported in found:
        assert f"`{method} {path}`" in page
        assert reported, f"{method} {path}"


def _public() -> dict[str, Any]:
    classes = public.reachable([*public.public_classes(), *public.public_functions().values()])
    named = {public.exported_name(each): each for each in classes}
    members = {f"{name}.{key}": member for name, each in named.items() for key, member in public.public_members(each)}
    return {**named, **public.public_functions(), **members}


def test_everything_public_has_a_docstring_and_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    named = _public()
    assert len(named) > 300
    assert {"ab.init", "Repository.merge", "Transaction.upsert", "Run.publish", "Table.to_arrow"} <= set(named)
    bare = {name for name, value in named.items() if not (value.__doc__ or "").strip()}
    made_up = {
        name for name, value in named.items() if inspect.isclass(value) and (value.__doc__ or "").startswith(f"{name}(")
    }
    assert bare | made_up == set()
    missing = {name for name in named if f"`{name}`" not in page and f".{name}`" not in page}
    assert missing == set()


def test_no_type_variable_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert re.findall(r"[\[ ]~[A-Z]\w*", page) == []
    assert "| `findings` | `tuple[Finding, ...]` |" in page


def test_every_error_is_in_the_reference() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    for name in ab.errors.__all__:
        assert f"| `{name}` |" in page


def test_a_docstring_begins_with_one_sentence() -> None:
    for name, value in _public().items():
        first = inspect.cleandoc(value.__doc__).split("\n\n")[0]
        assert first.rstrip().endswith((".", "?", ":")), f"{name}: {first}"


def test_rewriting_twice_changes_nothing(written: dict[str, str]) -> None:
    assert write_commands(written["cli.md"]) == written["cli.md"]
    assert write_routes(written["http.md"]) == written["http.md"]


def test_overview_links_every_method() -> None:
    page = (DOCS / "api-overview.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(api\.md#(\w+)\)", page))
    classes = (ab.Repository, ab.Transaction, ab.Run, ab.Snapshot, ab.Table, ab.Diff, ab.Pipeline)
    members = {f"{each.__name__}.{name}" for each in classes for name, _ in public.public_members(each)}
    wanted = members | set(public.public_functions())
    assert {name for name in wanted if name.lower().replace(".", "") not in linked} == set()


CHEAT_SHEET = (DOCS / "coming-from.md").read_text(encoding="utf-8")
CALLS = re.findall(r"`((?:ab|repo|pipeline)\.[^`]+)`", CHEAT_SHEET)


def test_cheat_sheet_has_commands_that_exist() -> None:
    known = commands()
    typed = re.findall(r"`(anabranch [^`]+)`", CHEAT_SHEET)
    assert len(typed) > 50
    for line in typed:
        words = line.split()
        command = next((known[name] for n in (4, 3, 2) if (name := " ".join(words[:n])) in known), None)
        assert command is not None, line
        options = {name for parameter in command.params for name in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z][\w-]*", line)) <= options, line


def _calls(text: str) -> Iterator[tuple[Any, ast.Call]]:
    """Yield each function that is called by its full name, with its call."""
    owners = {"ab": ab, "repo": ab.Repository, "pipeline": ab.Pipeline}
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call):
            named, *names = ast.unparse(call.func).split(".")
            if named in owners and all(name.isidentifier() for name in names):
                function: Any = owners[named]
                for name in names:
                    function = getattr(function, name)
                yield function, call


@pytest.mark.parametrize("text", sorted(set(CALLS)))
def test_cheat_sheet_has_methods_that_exist(text: str) -> None:
    if "(" not in text:
        assert hasattr(ab.Repository, text.removeprefix("repo."))
        return
    for function, call in _calls(text):
        is_method = text.startswith(("repo.", "pipeline."))
        positional = [None] * (len(call.args) + is_method)
        inspect.signature(function).bind(*positional, **{str(each.arg): None for each in call.keywords})
