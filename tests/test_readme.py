"""The README's Python is run as it stands, in order, in an empty folder."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_tour_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 5
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)  # noqa: S102 - our own text


def test_it_starts_with_exactly_two_commands() -> None:
    section = README.read_text(encoding="utf-8").split("## Two commands")[1].split("```")[1]
    assert [line.split("#")[0].strip() for line in section.strip().splitlines()] == ["make demo", "make test"]
