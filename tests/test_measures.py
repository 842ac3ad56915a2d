"""Limits on the shape of the code: no import cycle, and few files at the top of the repository."""

from pathlib import Path

from scripts import measure


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert measure.find_cycles() == []


def test_few_files_are_at_the_top_of_the_repository() -> None:
    found = measure.find_top_files()
    assert len(found) <= 6, found


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
    assert found["functions"] >= 1
    assert found["modules"] == 1
    assert outside == {"functions": 0, "modules": 0}
