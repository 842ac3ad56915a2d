"""The prose check finds words of the list in comments, strings, names and pages, and nowhere else."""

from pathlib import Path

import pytest
from scripts import prose

RULES = prose.read_rules()

MODULE = '''"""Report what a writer did."""

# This comment mentions a sign
# of life across a line break.
meanwhile = None  # a name is prose, and `anew` in backticks is not


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
    assert find(tmp_path / "module.py", MODULE) == [
        *((3, "sign of life"), (5, "meanwhile"), (8, "somebody"), (10, "is no")),
    ]


def test_names_and_comments_of_tests_are_checked_and_their_data_is_not(tmp_path: Path) -> None:
    assert find(tmp_path / "tests" / "test_it.py", MODULE) == [
        *((3, "sign of life"), (5, "meanwhile"), (8, "somebody")),
    ]


def test_names_of_parameters_variables_and_attributes_are_checked(tmp_path: Path) -> None:
    module = "def f(told, *, goes_on):\n    place = told\n    self.strangers = goes_on\n    file.tell()\n"
    found = [(1, "told"), (1, "goes on"), (2, "place"), (3, "strangers")]
    assert find(tmp_path / "module.py", module) == found


def test_names_of_files_functions_and_classes_are_checked(tmp_path: Path) -> None:
    module = "class StrangerWrite:\n    def take_back(self) -> None: ...\n\n    def tell(self) -> int: ...\n"
    assert find(tmp_path / "meanwhile.py", module) == [(1, "meanwhile"), (1, "Stranger"), (2, "take back")]


@pytest.mark.parametrize(
    "words",
    [
        *("whoever", "somebody else", "nobody", "tell", "says", "is no list", "is none", "meanwhile", "anew"),
        *("once more", "mend", "let go", "sign of life", "gives no sign", "stranger", "foreign write", "a place"),
        *("a sign", "at most so many", "look at", "take back", "takes it back", "go on"),
        *("the tables that it has of its own", "someone else's branch", "anyone", "everyone", "everybody", "no one"),
        *(
            "let the types be inferred",
            "takes the last write back",
            "took it back",
            "names that are no keys",
            "be no key",
        ),
        *("strangers", "a foreign writer", "signs of life", "mended", "in the meantime", "whomever", "told", "said so"),
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


def test_java_is_checked_in_comments_strings_and_names(tmp_path: Path) -> None:
    source = """/**
 * A `place` in code is a name,
 * a place is not.
 */
class TakeBack {
  // It goes
  // on here.
  String a = "the value is " +
      "no list" + '"' + "\\" // anew";
  int mendedRows() { return told; }
}
"""
    assert find(tmp_path / "Write.java", source) == [
        *((3, "place"), (5, "Take Back"), (6, "goes on"), (8, "is no"), (9, "anew"), (10, "mended"), (10, "told")),
    ]


def test_a_string_or_comment_of_java_is_read_across_its_lines(tmp_path: Path) -> None:
    assert find(tmp_path / "A.java", 'a = "it is "\n  + "no list";\n') == [(1, "is no")]
    assert find(tmp_path / "B.java", "/**\n * It goes\n * on.\n */\n") == [(2, "goes on")]


def test_scripts_of_pages_are_checked(tmp_path: Path) -> None:
    assert find(tmp_path / "page.js", "// once more\nconst meanwhile = `nobody`;\n") == [
        *((1, "once more"), (2, "meanwhile"), (2, "nobody")),
    ]


def test_templates_are_checked_outside_of_expressions(tmp_path: Path) -> None:
    page = """<p title="Look at it">{% if value is none %}{{ place }}{% endif %}
{# anew #}{{ field("Tell
us", hint='say it') }} <a href="/sign-in">Sign in</a></p>
"""
    assert find(tmp_path / "page.html", page) == [(1, "Look at"), (2, "anew"), (2, "Tell"), (3, "say")]


def test_comments_of_style_sheets_are_checked(tmp_path: Path) -> None:
    assert find(tmp_path / "page.css", ".sign { place-items: center }\n/* a\nsign */\n") == [(3, "sign")]


def test_scripts_of_others_are_not_checked() -> None:
    assert not [file for file in prose.iter_checked_files() if "vendor" in file.parts]
    assert {".py", ".java", ".js", ".html", ".css", ".md"} == {file.suffix for file in prose.iter_checked_files()}


def test_findings_name_the_file_the_line_and_the_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("Write it anew.\n")
    assert [str(finding) for finding in prose.find_in(file, RULES)] == [f"{file}:1: 'anew': write again"]


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="does not exist"):
        list(prose.iter_files([tmp_path / "absent"]))
