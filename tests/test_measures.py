"""Limits on the shape of the code: no import cycle, few files at the top of the repository, none long, few short."""

import ast
import subprocess
import sys
from pathlib import Path

from scripts import measure


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert measure.find_cycles() == []


def test_few_files_are_at_the_top_of_the_repository() -> None:
    found = measure.find_top_files()
    assert len(found) <= 6, found


def test_no_file_of_the_repository_is_long() -> None:
    found = {str(path): len(path.read_text().splitlines()) for path in measure.REPO.rglob("*.py")}
    assert [path for path, lines in found.items() if lines > measure.LONG_FILE] == [str(measure.FACADE)]


def test_files_are_few_and_few_are_short() -> None:
    files = list(measure.SOURCE.rglob("*.py"))
    assert len(files) <= 280
    # The decision 25 has the reason for this number.
    assert sum(len(path.read_text().splitlines()) for path in files) <= 73_966
    short = sorted(str(path) for path in files if len(path.read_text().splitlines()) < measure.SHORT_FILE)
    assert len(short) <= 30, short
    # Most packages have only a docstring, which states what is in the folder.
    modules = [path for path in short if not path.endswith("__init__.py")]
    assert len(modules) <= 15, modules


def test_comments_are_kept_and_few_functions_are_complex() -> None:
    assert measure.measure_files()["comment lines, percent"] >= 3
    assert measure.count_complex(measure.SOURCE) <= 60


def test_complexity_counts_conditions_inside_expressions() -> None:
    text = "def f(a, b):\n    if a and b:\n        return [x for x in a if x]\n    return a if b else None\n"
    assert measure.count_paths(ast.parse(text).body[0]) == 1 + 2 + 2 + 1


def test_cycles_of_any_size_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    found = {frozenset(group) for group in measure.find_components(edges)}
    assert found == {frozenset("abc"), frozenset("de"), frozenset("f")}


def test_recorder_counts_functions_of_the_package_only(tmp_path: Path) -> None:
    from anabranch.ids import TableKey

    recorder = measure.Recorder()
    recorder.install()
    try:
        found = recorder.record(lambda: TableKey.parse("shop.orders"))
        outside = recorder.record(lambda: tmp_path.exists())
    finally:
        recorder.remove()
    assert ("ids.py", "TableKey.parse", 1) in [(one.module, one.function, one.calls) for one in found]
    assert measure.count_called(found)["modules"] == 1
    assert outside == []


def test_an_append_and_a_read_run_through_few_functions() -> None:
    # In a process of its own, because threads that started before the recorder are not recorded.
    program = "from scripts import measure; print(*map(measure.list_called, measure.record_paths().values()), sep='--')"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=measure.PROJECT, capture_output=True, text=True, check=True
    )
    append, read = ([line.strip() for line in listed.splitlines()] for listed in ran.stdout.split("--"))
    for listed, functions, modules in ((append, 110, 25), (read, 28, 12)):
        found = sum(line[0].isdigit() for line in listed), sum(line.endswith(".py") for line in listed)
        assert found[0] <= functions, found
        assert found[1] <= modules, found
    assert any("Transaction.append x1" in line for line in append)
    assert any("Table.to_arrow x1" in line for line in read)
