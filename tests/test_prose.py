"""The prose check finds words of the list in comments, strings, test names and pages, and nowhere else."""

from pathlib import Path

import pytest
from scripts import prose

RULES = prose.read_rules()

MODULE = '''"""Report what a writer did."""

# This comment mentions a sign
# of life across a line break.
meanwhile = None  # a name is not prose, nor is `anew` in backticks


def test_somebody(value: str) -> str:
    if not value:
        raise ValueError(f"{value!r} "
            f"is no list")
    return "there is no list, and the list is no longer there"
'''


def find(path: Path, text: str) -> list[tuple[int, str]]:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return [(finding.line, finding.words) for finding in prose.find_in(path, RULES)]


def test_comments_and_strings_of_a_module_are_checked(tmp_path: Path) -> None:
    assert find(tmp_path / "module.py", MODULE) == [(3, "sign of life"), (10, "is no")]


def test_names_and_comments_of_tests_are_checked_and_their_data_is_not(tmp_path: Path) -> None:
    assert find(tmp_path / "tests" / "test_it.py", MODULE) == [(3, "sign of life"), (8, "somebody")]


def test_pages_are_checked_outside_of_inline_code(tmp_path: Path) -> None:
    page = "# Title\n\nThe table `nobody` is read once\nmore.\n\nIt goes on\n\nTop: go on top of it.\n"
    assert find(tmp_path / "page.md", page) == [(3, "once more"), (6, "goes on")]


def test_findings_name_the_file_the_line_and_the_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("Write it anew.\n")
    assert [str(finding) for finding in prose.find_in(file, RULES)] == [f"{file}:1: 'anew': write again"]


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="does not exist"):
        list(prose.iter_files([tmp_path / "absent"]))
