"""A reader who believes everything would prove nothing: wrong pages are noticed."""

from pathlib import Path

import pytest

from tests.docs.pages import Reader, read_blocks


def _follow(folder: Path, text: str) -> int:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return Reader(folder=folder, env={"ANABRANCH_ACTOR": "ada"}).follow(page, read_blocks(page))


def test_what_a_page_shows_of_python_is_compared(tmp_path: Path) -> None:
    assert _follow(tmp_path, "```python\nprint(1 + 1)\n```\n\n```text\n2\n```\n") == 1
    with pytest.raises(AssertionError, match=r"page.md:2 shows"):
        _follow(tmp_path, "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")


def test_what_a_page_shows_of_a_command_is_compared(tmp_path: Path) -> None:
    made = "made a repository at /home/ada/lake, with branch main at 01M7HYZR0HJB51"
    refused = "error: there is no branch 'dev'\n..."
    text = f"```console\n$ anabranch init lake\n{made}\n$ anabranch branch delete dev\n{refused}\n```"
    assert _follow(tmp_path, text) == 2
    with pytest.raises(AssertionError, match=r"page.md:4 shows"):
        _follow(tmp_path, "```console\n$ anabranch status --json\n...\n$ anabranch branch list\nno branches\n```")


def test_what_a_page_shows_of_a_service_is_compared(tmp_path: Path) -> None:
    """It is the output of the process, and so without a token if none is asked for."""
    serving = "serving /home/ada/data at http://127.0.0.1:8000"
    with pytest.raises(AssertionError, match=r"page.md:2 shows\ntoken: "):
        _follow(tmp_path, f"```console\n$ anabranch serve --data ./data\ntoken: ab_…\n{serving}\n```")


@pytest.mark.parametrize("command", ["anabranch branch show nowhere", "anabranch no-such-command", "false"])
def test_a_command_that_fails_silently_is_noticed(tmp_path: Path, command: str) -> None:
    with pytest.raises(AssertionError):
        _follow(tmp_path, f"```console\n$ anabranch init lake\n$ {command}\n```")


def test_python_that_raises_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        _follow(tmp_path, "```python\n1 / 0\n```")


def test_files_are_made_and_sections_know_what_they_need(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    one = '# Page\n\n## One\n\n```csv title="a.csv"\nid\n1\n```\n\n'
    page.write_text(f"{one}## Two\n<!-- needs: s3 -->\n\n```console\n$ cat a.csv\nid\n1\n```\n", encoding="utf-8")
    blocks = read_blocks(page)
    assert [(block.section, block.needs, block.title) for block in blocks] == [
        ("One", None, "a.csv"),
        ("Two", "s3", None),
    ]
    assert Reader(folder=tmp_path, env={}).follow(page, blocks) == 1
