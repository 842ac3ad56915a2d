"""Measure how easy the code is to read: import cycles, sizes, complexity, and what an append and a read run through."""

import argparse
import ast
import io
import json
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import grimp

PROJECT = Path(__file__).resolve().parents[1]
SOURCE = PROJECT / "src"
PACKAGE = SOURCE / "anabranch"
REPO = PACKAGE / "repo"
FACADE = REPO / "repository.py"
LONG_FILE, SHORT_FILE = 400, 60
COMPLEX = 10
# Parts of the function around them.
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})


def find_cycles() -> list[list[str]]:
    """Return the groups of modules that import each other, also for type checking only or inside functions."""
    graph = grimp.build_graph("anabranch", exclude_type_checking_imports=False, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    return sorted(sorted(group) for group in find_components(imported) if len(group) > 1)


def find_components(edges: Mapping[str, Iterable[str]]) -> Iterator[set[str]]:
    """Yield the strongly connected components of a graph (Kosaraju): walk backwards, from what is left last."""
    importers: dict[str, list[str]] = {node: [] for node in edges}
    for node, targets in edges.items():
        for target in targets:
            importers[target].append(node)
    order: list[str] = []
    seen: set[str] = set()
    for node in edges:
        order += _walk(node, edges, seen)
    seen = set()
    for node in reversed(order):
        found = set(_walk(node, importers, seen))
        if found:
            yield found


def _walk(start: str, edges: Mapping[str, Iterable[str]], seen: set[str]) -> list[str]:
    """Return the nodes that can be reached and are not seen yet, each after those behind it, and mark them as seen."""
    if start in seen:
        return []
    seen.add(start)
    left: list[str] = []
    path = [(start, iter(edges[start]))]
    while path:
        node, targets = path[-1]
        new = next((target for target in targets if target not in seen), None)
        if new is None:
            path.pop()
            left.append(node)
        else:
            seen.add(new)
            path.append((new, iter(edges[new])))
    return left


def find_top_files() -> list[str]:
    """Return the names of the files that are directly in `repo/`."""
    return sorted(path.name for path in REPO.glob("*.py"))


def measure_files() -> dict[str, Any]:
    lines = {path: _count_lines(path) for path in sorted(SOURCE.rglob("*.py"))}
    long = Counter(_folder(path) for path, count in lines.items() if count > LONG_FILE and path != FACADE)
    comments = sum(_count_comments(path) for path in lines)
    return {
        "files": len(lines),
        "lines": sum(lines.values()),
        f"files above {LONG_FILE} lines, by folder": dict(sorted(long.items())),
        f"files under {SHORT_FILE} lines": sum(count < SHORT_FILE for count in lines.values()),
        f"files under {SHORT_FILE} lines in repo": sum(
            count < SHORT_FILE for path, count in lines.items() if path.is_relative_to(REPO)
        ),
        "comment lines, percent": round(100 * comments / sum(lines.values()), 1),
    }


def _folder(path: Path) -> str:
    return str(path.parent.relative_to(SOURCE))


def _count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _count_comments(path: Path) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    # A comment behind code shares its line.
    return sum(token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip() for token in tokens)


def count_complex(folder: Path) -> int:
    """Count the functions with a cyclomatic complexity of 10 or more."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum(count_paths(function) >= COMPLEX for function in functions)


def count_paths(function: ast.AST) -> int:
    """Return the cyclomatic complexity of a function, with the functions inside it.

    Conditional expressions, boolean operators and comprehensions count, as in radon. Rule C901 of ruff ignores them.
    """
    paths = 1
    for node in ast.walk(function):
        match node:
            case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler() | ast.IfExp():
                paths += 1
            case ast.match_case():
                paths += 1
            case ast.BoolOp(values=values):
                paths += len(values) - 1
            case ast.comprehension(ifs=conditions):
                paths += 1 + len(conditions)
    return paths


class Called(NamedTuple):
    """A function of the package that ran, and how often."""

    module: str
    line: int
    function: str
    calls: int


def count_called(called: Sequence[Called]) -> dict[str, int]:
    return {"functions": len(called), "modules": len({one.module for one in called})}


class Recorder:
    """Records which functions of the package run, in all threads that start after it was installed."""

    def __init__(self) -> None:
        self._codes: Counter[CodeType] | None = None

    def install(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def remove(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def record(self, act: Callable[[], object]) -> list[Called]:
        """Return the functions that ran, by module and line."""
        self._codes = Counter()
        try:
            act()
        finally:
            codes, self._codes = self._codes, None
        return sorted(
            Called(code.co_filename.removeprefix(f"{PACKAGE}/"), code.co_firstlineno, code.co_qualname, calls)
            for code, calls in codes.items()
            if code.co_filename.startswith(str(PACKAGE)) and code.co_name not in _COMPREHENSIONS
        )

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        codes = self._codes
        if codes is not None and event == "call":
            codes[frame.f_code] += 1


def record_paths() -> dict[str, list[Called]]:
    """Return the functions that an append of one row until it is settled and a read of a table run through.

    The repository was used before, and is on a local disk, with full durability.
    """
    # Before the package starts threads of its own.
    recorder = Recorder()
    recorder.install()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _record_paths(recorder, folder)
    finally:
        recorder.remove()


def _record_paths(recorder: Recorder, folder: str) -> dict[str, list[Called]]:
    import pyarrow as pa

    import anabranch as ab

    repo = ab.init(f"{folder}/lake")

    def append() -> None:
        with repo.transaction(message="Append one order") as tx:
            tx.append("shop.orders", pa.table({"id": [1], "amount": [9.5]}))

    def read() -> None:
        repo.snapshot()["shop.orders"].to_arrow()

    with repo.transaction(message="Create the table") as tx:
        tx.create_table("shop.orders", pa.schema([("id", pa.int64()), ("amount", pa.float64())]))
    for warm in (append, read, append, read):
        warm()
    return {"append": recorder.record(append), "read": recorder.record(read)}


def list_called(called: Sequence[Called]) -> str:
    """Return the functions by module, each with its line and the number of its calls, as text."""
    lines = []
    for module, functions in groupby(called, key=lambda one: one.module):
        lines.append(module)
        lines += [f"{one.line:8} {one.function} x{one.calls}" for one in functions]
    return "\n".join(lines)


def measure() -> dict[str, Any]:
    cycles, paths = find_cycles(), record_paths()
    return {
        "import cycles": len(cycles),
        "modules in import cycles": sum(map(len, cycles)),
        "files at the top of repo": len(find_top_files()),
        **measure_files(),
        f"functions with complexity {COMPLEX} or more": count_complex(SOURCE),
        f"functions with complexity {COMPLEX} or more in repo": count_complex(REPO),
        "append of one row until settled": count_called(paths["append"]),
        "read of a table": count_called(paths["read"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--list", choices=("append", "read"), help="list the functions that one of these runs through")
    chosen = parser.parse_args()
    if chosen.list:
        called = record_paths()[chosen.list]
        print(list_called(called))
        print(", ".join(f"{count} {what}" for what, count in count_called(called).items()))
        return
    figures = measure()
    if chosen.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        shown = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
        print(f"{name:48} {shown}")


if __name__ == "__main__":
    main()
