"""Check that comments, docstrings, messages, names, templates and the guide are in plain technical English.

Names are those of files, classes, functions, parameters and variables. Of Java and JavaScript all names are read.

The words to avoid are in `prose_words.txt`, the checked paths in `[tool.anabranch.prose]` of pyproject.toml.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
WORDS = Path(__file__).with_name("prose_words.txt")
# Read by --all. The decisions in docs/adr are records of their time and stay as they are; others wrote the
# scripts in vendor.
ALL = ("src", "tests", "scripts", "benchmarks", "examples", "docs", "README.md", "CONTRIBUTING.md")
EXCLUDED = ("docs/adr", "src/anabranch/server/ui/static/vendor")
SUFFIXES = (".py", ".md", ".java", ".js", ".html", ".css")
# Names that Python prescribes: the position in a file object.
_PROTOCOLS = {"tell"}
# Comments (those on successive lines are one), strings (the parts of a sum are one) and names of Java and JavaScript.
_LITERAL = r'''(?:"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)'''
_TOKENS = re.compile(
    rf"(?P<comment>/\*[\s\S]*?\*/|//.*(?:\n\s*//.*)*)|(?P<string>{_LITERAL}(?:\s*\+\s*{_LITERAL})*)|(?P<name>[A-Za-z_]\w*)"
)
# What a template computes; its strings are prose, its expressions are code.
_EXPRESSION = re.compile(r"\{([{%])[\s\S]*?[%}]\}")
# What may stand between two words of one passage: space, the start of a comment, the seam of two strings, and the
# underscores of a name.
_JOINTS = re.compile(r"""(?:[\s#_*/]|\\n|["']\s+(?:\+\s*)?[rRfF]?["']|(?<=[a-z0-9])(?=[A-Z]))+""")


@dataclass(frozen=True, slots=True)
class Finding:
    path: Path
    line: int
    words: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: '{self.words}': write {self.advice}"


class Passage:
    """A piece of text with single spaces, so that a rule also matches across a line break, and its line numbers."""

    def __init__(self, lines: Iterable[tuple[int, str]]) -> None:
        self._starts: list[int] = []
        self._numbers: list[int] = []
        parts: list[str] = []
        length = 0
        for number, text in lines:
            # An empty line ends a sentence: nothing matches across it.
            part = " ".join(text.split()) or "\n"
            self._starts.append(length)
            self._numbers.append(number)
            parts.append(part)
            length += len(part) + 1
        self.text = " ".join(parts)

    def line_at(self, offset: int) -> int:
        return self._numbers[bisect(self._starts, offset) - 1]


class Rules:
    """The rules of a word list as one pattern: a search by each of them in turn takes ten times as long."""

    def __init__(self, lines: Iterable[str]) -> None:
        rules = [line.partition("\t") for line in lines if line and not line.startswith("#")]
        self._advice = {f"rule{number}": advice for number, (_, _, advice) in enumerate(rules)}
        patterns = (f"(?P<rule{number}>{pattern})" for number, (pattern, _, _) in enumerate(rules))
        self._pattern = re.compile(rf"(?<![\w'])(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE)

    def may_match(self, source: str) -> bool:
        """Return False if no passage of a file can have a finding. Most have none, and a tokenizer is slow."""
        return self._pattern.search(_JOINTS.sub(" ", source)) is not None

    def iter_matches(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Yield the offset and the words of each match, and what to write instead."""
        for match in self._pattern.finditer(text):
            yield match.start(), match.group(), self._advice[match.lastgroup or ""]


def read_rules() -> Rules:
    return Rules(WORDS.read_text(encoding="utf-8").splitlines())


def find_in(path: Path, rules: Rules) -> list[Finding]:
    """Return the findings of one file, in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    if not rules.may_match(f"{path.stem}\n{source}"):
        return []
    passages = _find_passages(path, source)
    shown = path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path
    found = [
        Finding(shown, passage.line_at(offset), words, advice)
        for passage in passages
        for offset, words, advice in rules.iter_matches(passage.text)
    ]
    return sorted(found, key=lambda finding: finding.line)


def _find_passages(path: Path, source: str) -> Iterator[Passage]:
    match path.suffix:
        case ".py":
            return _python_passages(path, source)
        case ".java" | ".js":
            return _script_passages(path, source)
        case ".html":
            return iter([_lines(1, _EXPRESSION.sub(_keep_strings, source))])
        case ".css":
            return (_lines(_line_of(source, m), m.group()) for m in re.finditer(r"/\*[\s\S]*?\*/", source))
        case _:
            return _page(source)


def _script_passages(path: Path, source: str) -> Iterator[Passage]:
    yield _name(1, path.stem)
    for match in _TOKENS.finditer(source):
        line = _line_of(source, match)
        if match["name"]:
            yield _name(line, match.group())
        elif match["comment"]:
            yield _lines(line, _without_code(re.sub(r"(?m)^\s*(//|/?\*+/?)", "", match.group())))
        else:
            yield _lines(line, re.sub(r"""["']\s*\+\s*["']""", _keep_line_ends, match.group().strip("\"'`")))


def _keep_strings(expression: re.Match[str]) -> str:
    """Return the strings of an expression of a template, and its line ends."""
    parts = re.findall(r"""'[^']*'|"[^"]*"|\n""", expression.group())
    return "{" + " | ".join(part.strip("\"'") for part in parts) + "}"


def _keep_line_ends(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def _line_of(source: str, match: re.Match[str]) -> int:
    return source.count("\n", 0, match.start()) + 1


def _lines(first: int, text: str) -> Passage:
    return Passage(enumerate(text.split("\n"), first))


def _page(source: str) -> Iterator[Passage]:
    lines = []
    is_code = False
    for line in source.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
            lines.append("")
        elif is_code:
            # Of code only its comments are prose. What it prints is checked where the text is written.
            lines.append(line.partition("# ")[2])
        else:
            # Code in backticks is a name, not prose.
            lines.append(re.sub(r"(`+)[^`]+\1", "`code`", line))
    yield Passage(enumerate(lines, 1))


def _python_passages(path: Path, source: str) -> Iterator[Passage]:
    yield _name(1, path.stem)
    yield from _comments(source)
    tree = ast.parse(source)
    yield from _names(tree)
    if "tests" in path.parts:
        # The strings of tests are data and other programs' messages; only their docstrings are prose.
        yield from _docstrings(tree)
    else:
        yield from _strings(tree)


def _comments(source: str) -> Iterator[Passage]:
    """Yield the comments; those on successive lines are one passage."""
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            number = token.start[0]
            if block and block[-1][0] + 1 != number:
                yield Passage(block)
                block = []
            block.append((number, _without_code(token.string.lstrip("#"))))
    if block:
        yield Passage(block)


def _strings(tree: ast.AST) -> Iterator[Passage]:
    """Yield the strings; the parts of an f-string are one passage."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            inside.update(map(id, parts))
            yield _string(node, "".join(str(part.value) if part in parts else "{}" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield _string(node, node.value)


def _docstrings(tree: ast.AST) -> Iterator[Passage]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield _string(node, node.value.value)


def _names(tree: ast.AST) -> Iterator[Passage]:
    """Yield the names that are defined as words: of functions, classes, parameters, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if name not in _PROTOCOLS:
                    yield _name(node.lineno, name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield _name(node.lineno, name)


def _name(line: int, name: str) -> Passage:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.replace("_", " "))
    return Passage([(line, words)])


def _string(node: ast.expr | ast.stmt, value: str) -> Passage:
    last = node.end_lineno or node.lineno
    # A line of a docstring is a line of the file; that of an escaped or continued string is only near it.
    lines = enumerate(_without_code(value).split("\n"), node.lineno)
    return Passage((min(number, last), text) for number, text in lines)


def _without_code(text: str) -> str:
    return re.sub(r"`[^`]+`", lambda match: "`code`" + "\n" * match.group().count("\n"), text)


def iter_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            sys.exit(f"{path} does not exist")
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            is_excluded = any(file.is_relative_to(PROJECT / excluded) for excluded in EXCLUDED)
            if file.suffix in SUFFIXES and not is_excluded:
                yield file


def iter_checked_files() -> Iterator[Path]:
    """Yield the files of the `checked` paths without those below the `excluded` ones."""
    config = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["anabranch"]["prose"]
    excluded = [PROJECT / path for path in config.get("excluded", ())]
    for file in iter_files(PROJECT / path for path in config["checked"]):
        if not any(file.is_relative_to(path) for path in excluded):
            yield file


def print_counts(rules: Rules) -> None:
    """Print the number of findings of each folder of the project that is not checked yet."""
    checked = set(iter_checked_files())
    counts: Counter[Path] = Counter()
    words: Counter[str] = Counter()
    for file in iter_files(PROJECT / path for path in ALL):
        if file not in checked:
            found = find_in(file, rules)
            counts[file.parent.relative_to(PROJECT)] += len(found)
            words.update(finding.words.lower() for finding in found)
    for folder, count in sorted(counts.items()):
        if count:
            print(f"{count:6}  {folder}")
    print(f"{counts.total():6}  in all; most often: {', '.join(f'{word} {n}' for word, n in words.most_common(12))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders (default: the checked paths)")
    parser.add_argument("--all", action="store_true", help="count the findings of each folder that is not checked yet")
    options = parser.parse_args()
    rules = read_rules()
    if options.all:
        print_counts(rules)
        return
    paths = [path.resolve() for path in options.paths]
    files = iter_files(paths) if paths else iter_checked_files()
    found = [finding for file in files for finding in find_in(file, rules)]
    for finding in found:
        print(finding)
    if found:
        sys.exit(f"{len(found)} findings; scripts/prose_words.txt has the rules")


if __name__ == "__main__":
    main()
