"""Every error and hint in the source is written in the words of the door at which a user reads it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts.reference import public
from scripts.reference.commands import commands

import anabranch as ab
from anabranch import errors
from anabranch.hints import _CODE, METHODS, Door, words_at
from tests.test_public_words import WORDS

ROOT = Path(ab.__file__).parent
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
# Doors, and what only they use. Everything else is the library.
CLI = ("cli/", "config.py")
HTTP = ("server/",)
SPARK = ("spark/",)
# The command line starts the service, so what keeps it from starting is written for the command line.
STARTUP = ("server/app.py", "server/database.py", "server/projects.py", "server/ui/sql.py")
# Words for the inside of the storage format, which a user never sees.
INTERNALS = re.compile(
    r"\b(detached|field ids?|log entr(y|ies)|home of|no home|write set|version ref|py4j|pylance\.\w+|lance\.\w+|Rust)\b"
)
# Python in a text: a call without arguments, an argument with a value, a method of the library.
PYTHON = re.compile(
    r"\b(?!latest_by)[a-z]+_[a-z_]+\(|\b[a-z_]+\(\)|\b[a-z_]+=(True|False|None|'|\[|\{|\.\.\.)|\brepo\.\w+"
)
COMMAND = re.compile(r"'anabranch (?!\[)|--[a-z]")
OPTIONS = {option for command in commands().values() for each in command.params for option in each.opts}


@dataclass(frozen=True)
class Text:
    """A text of an error: where it is, and its template, with the code of placeholders in braces."""

    file: str
    line: int
    template: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.template}"

    @property
    def words(self) -> str:
        """The text as it is written, without what placeholders insert."""
        return re.sub(r"\{[^{}]*\}", "X", self.template)


def template_of(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "{x}" for part in parts)  # type: ignore[misc]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template_of(left) + template_of(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{template_of(body)} | {template_of(other)}"
        case ast.Call(args=[*_, last]) if ast.unparse(node.func) == "suggest":
            return template_of(last)
        case _:
            return "{x}"


def calls() -> Iterator[ast.Call]:
    for tree in TREES.values():
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_error(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] in {*errors.__all__, "fail"}


def texts() -> Iterator[tuple[Text, Text]]:
    """The problem and the hint of every error that the source raises or makes."""
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and is_error(node) and node.args:
                hints = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
                if hints:
                    yield (
                        Text(file, node.lineno, template_of(node.args[0])),
                        Text(file, node.lineno, template_of(hints[0])),
                    )


def constants() -> Iterator[Text]:
    """Every text in the library that is not a docstring: some become hints on a way that no walk finds."""
    for file, tree in TREES.items():
        if file.startswith((*CLI, *HTTP, *SPARK)) or file in ("hints.py", "sample_lake.py", "testing.py"):
            continue
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield Text(file, node.lineno, node.value)


TEXTS = list(texts())
LIBRARY = [text for pair in TEXTS for text in pair if not text.file.startswith((*CLI, *HTTP, *SPARK))]


def test_the_walk_finds_the_errors() -> None:
    assert len(TEXTS) > 800
    made = {getattr(node.func, "id", getattr(node.func, "attr", "")) for node in calls()}
    bases = {each.__name__ for name in errors.__all__ for each in getattr(errors, name).__bases__}
    # Tables map messages of Lance and of stores to the classes of these.
    by_table = {"StorageUnavailableError", "TagNotFoundError", "UnsupportedFormatError", "BaseExistsError"}
    assert {*errors.__all__} - made - bases - by_table == set()


def test_every_error_has_a_problem_and_a_hint_in_one_line() -> None:
    empty = [str(text) for pair in TEXTS for text in pair if not text.template.strip() or "\n" in text.template]
    assert empty == []


def test_texts_begin_in_lower_case_and_end_without_a_full_stop() -> None:
    """They are parts of one sentence: 'problem; hint'."""
    wrong = [
        str(text) for pair in TEXTS for text in pair if re.match(r"[A-Z][a-z]+ ", text.words) or text.words[-1] == "."
    ]
    assert [text for text in wrong if not re.search(r": (PySpark|Lance|SHOW|PIVOT|Spark|Java)", text)] == []


def test_code_in_a_hint_is_between_backticks() -> None:
    """Elsewhere it could not be translated for the command line."""
    bare = [text for text in LIBRARY if PYTHON.search(re.sub(r"`[^`]*`", "", text.words))]
    # Files of pipelines are Python, and processes are started in Python.
    assert [str(text) for text in bare if not text.file.startswith(("pipelines/", "storage/requests.py"))] == []


def test_no_text_of_the_library_names_a_command() -> None:
    shown = [text for text in constants() if COMMAND.search(text.template) and "--paper" not in text.template]
    assert [str(text) for text in shown] == []


def test_no_hint_of_the_command_line_names_python() -> None:
    hints = [hint for _, hint in TEXTS if hint.file.startswith(CLI)]
    assert len(hints) > 20
    assert [str(hint) for hint in hints if PYTHON.search(hint.words) or "`" in hint.words] == []


def test_no_hint_of_the_service_names_python_or_an_option() -> None:
    hints = [hint for _, hint in TEXTS if hint.file.startswith(HTTP) and hint.file not in STARTUP]
    assert len(hints) > 60
    assert [str(hint) for hint in hints if PYTHON.search(hint.words) or COMMAND.search(hint.words)] == []


def test_no_text_names_internal_classes() -> None:
    defined = {node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    exported = {*ab.__all__, *dir(ab.types)}
    internal = {name for name in defined - exported if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", name)}
    named = re.compile(rf"\b({'|'.join(sorted(internal))})\b")
    assert len(internal) > 100
    assert [str(text) for pair in TEXTS for text in pair if named.search(text.words)] == []
    assert [str(text) for pair in TEXTS for text in pair if INTERNALS.search(text.words)] == []


def spans() -> list[str]:
    templates = (text.template.replace("{!r}", "'x'") for text in constants())
    return sorted({found[0].strip("`") for template in templates for found in _CODE.finditer(template)})


def test_every_method_in_a_hint_exists_in_python_and_as_a_command() -> None:
    members = {name for each in public.public_classes() for name, _ in public.public_members(each)}
    known = members | {name.removeprefix("ab.") for name in public.public_functions()}
    assert [name for name in METHODS if name.rpartition(".")[2] not in known] == []
    typed = {" ".join(name.split()[1:]) for name in commands()}
    assert [words.command for words in METHODS.values() if words.command.partition(" --")[0] not in typed] == []


@pytest.mark.parametrize("code", spans())
def test_code_in_a_hint_can_be_translated(code: str) -> None:
    shown = words_at(Door.COMMAND_LINE, f"`{code}`")
    assert "`" not in shown
    for door in Door:
        assert "`" not in words_at(door, f"`{code}`")
    if "(" not in code:
        assert code.partition("=")[0] in WORDS | {"csv", "header"}
        assert shown.split()[0] in OPTIONS


@pytest.mark.parametrize(
    ("hint", "command_line", "http", "page"),
    [
        ("pass `overwrite=True`", "pass --overwrite", "pass overwrite=true", "pass --overwrite in a command"),
        (
            "pass `where=...`, or `where='true'`",
            "pass --where WHERE, or --where true",
            "pass 'where', or where=true",
            "pass 'Rows where', or 'Rows where' true",
        ),
        (
            "pass `primary_key=['id']`",
            "pass --primary-key id",
            "pass primary_key=['id']",
            "pass 'Primary key of a new table' id",
        ),
        (
            "pass `csv=CsvOptions(delimiter=',')`, or",
            "pass --delimiter ',', or",
            "pass delimiter=',', or",
            "pass --delimiter ',' in a command, or",
        ),
        ("`csv=CsvOptions(quote='')`", "--quote ''", "quote=''", "--quote '' in a command"),
        ("`schema={'v': 'string'}`", "--type v=string", "schema={'v': 'string'}", "--type v=string in a command"),
        (
            "leave `schema` out",
            "leave --type COLUMN=TYPE out",
            "leave 'schema' out",
            "leave --type COLUMN=TYPE in a command out",
        ),
        (
            "see `undo()`",
            "see 'anabranch undo'",
            "see 'anabranch undo' where the service runs",
            "see the page Reflog",
        ),
        ("use `diff()`", "use 'anabranch diff'", "use GET .../diff", "use the page Compare"),
        (
            "`settle('a.b', branch='dev', force=True)`",
            "'anabranch table settle a.b --branch dev --force'",
            "'anabranch table settle a.b --branch dev --force' where the service runs",
            "'anabranch table settle a.b --branch dev --force'",
        ),
        (
            "`relocate('lake', mapping={'OLD': 'NEW'})`",
            "'anabranch relocate lake --mapping OLD=NEW'",
            "'anabranch relocate lake --mapping OLD=NEW' where the service runs",
            "'anabranch relocate lake --mapping OLD=NEW'",
        ),
        ("did you mean 'a`b'? use `x", *["did you mean 'a`b'? use `x"] * 3),
    ],
)
def test_hints_are_translated_for_each_door(hint: str, command_line: str, http: str, page: str) -> None:
    assert words_at(Door.COMMAND_LINE, hint) == command_line
    assert words_at(Door.HTTP, hint) == http
    assert words_at(Door.PAGE, hint) == page


@pytest.mark.parametrize(
    ("hint", "sql"),
    [
        ("pass `overwrite=True`", "pass overwrite => TRUE"),
        ("pass `where=...`, or `where='true'`", "pass where => ..., or where => 'true'"),
        ("pass `primary_key=['id']`", "pass primary_key => array('id')"),
        ("`resolvers={'price': 'max'}`", "resolvers => map('price', 'max')"),
        ("leave `schema` out", "leave 'schema' out"),
        ("see `undo()`", "see CALL system.undo()"),
        ("`branch_create('x', source='main')`", "CALL system.create_branch('x', source => 'main')"),
        ("`upsert()`", "MERGE INTO"),
        ("`settle('a.b', force=True)`", "'anabranch table settle a.b --force' in a shell"),
    ],
)
def test_hints_of_spark_are_in_sql(hint: str, sql: str) -> None:
    assert words_at(Door.SPARK_SQL, hint) == sql


@pytest.mark.parametrize(
    ("door", "hint", "words"),
    [
        (
            Door.PAGE,
            "see `branch_list()`, `tag_list()` and `list_commits()`",
            "see the page Branches and the page Graph",
        ),
        (Door.PAGE, "see `list_commits()` or `iter_graph()`", "see the page Graph"),
        (Door.PAGE, "`undo()`, `redo()` or `diff()` helps", "the page Reflog or the page Compare helps"),
        (Door.HTTP, "see `list_commits()` and `sync_branch()`", "see GET .../commits"),
        (
            Door.COMMAND_LINE,
            "see `branch_list()`, `tag_list()` and `list_commits()`",
            "see 'anabranch branch list', 'anabranch tag list' and 'anabranch log'",
        ),
    ],
)
def test_each_page_is_named_once(door: Door, hint: str, words: str) -> None:
    assert words_at(door, hint) == words


def test_no_hint_of_a_page_names_a_page_twice_in_a_row() -> None:
    for _, hint in TEXTS:
        if not hint.file.startswith((*CLI, *SPARK)) and "`{x}" not in hint.template:
            shown = words_at(Door.PAGE, hint.template.replace("{x}", "x"))
            assert not re.search(r"(the page \w+)(, | and | or )(.*(, | and | or ))?\1\b", shown), shown
