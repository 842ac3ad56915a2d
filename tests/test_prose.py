"""The prose check finds words of the list in comments, strings, names and pages, and nowhere else."""

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
    assert find(tmp_path / "module.py", MODULE) == [(3, "sign of life"), (8, "somebody"), (10, "is no")]


def test_names_and_comments_of_tests_are_checked_and_their_data_is_not(tmp_path: Path) -> None:
    assert find(tmp_path / "tests" / "test_it.py", MODULE) == [(3, "sign of life"), (8, "somebody")]


def test_names_of_files_functions_and_classes_are_checked(tmp_path: Path) -> None:
    module = "class StrangerWrite:\n    def take_back(self) -> None: ...\n\n    def tell(self) -> int: ...\n"
    assert find(tmp_path / "meanwhile.py", module) == [(1, "meanwhile"), (1, "Stranger"), (2, "take back")]


@pytest.mark.parametrize(
    "words",
    [
        *("whoever", "somebody else", "nobody", "tell", "says", "is no list", "is none", "meanwhile", "anew"),
        *("once more", "mend", "let go", "sign of life", "gives no sign", "stranger", "foreign write", "a place"),
        *("a sign", "at most so many", "look at", "take back", "takes it back", "go on"),
        "the tables that it has of its own",
    ],
)
def test_every_word_of_the_house_is_found(tmp_path: Path, words: str) -> None:
    assert find(tmp_path / "page.md", f"Text {words} text.\n")


@pytest.mark.parametrize(
    "words",
    [
        *("written in place", "an in-place change", "takes place", "two decimal places", "a placeholder"),
        *("a minus sign", "the sign bit", "sign in", "design", "value is None", "there is no list"),
        *("is no longer there", "goes on top of it", "the specification says"),
    ],
)
def test_technical_uses_are_allowed(tmp_path: Path, words: str) -> None:
    assert not find(tmp_path / "page.md", f"Text {words} text.\n")


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
