"""The notebook of the tour is executed, and the outputs in its file and on its page are those of today's code."""

import re
from pathlib import Path
from typing import Any

from scripts import notebook as script


def outputs(notebook: Any) -> list[list[str]]:
    """The texts of the outputs of each cell, without what differs from one lake to another."""
    return [[_text(output) for output in cell.get("outputs", ())] for cell in notebook.cells]


def _text(output: Any) -> str:
    data = output.get("data", {})
    text = data.get("text/html") or data.get("text/plain") or output.get("text") or output.get("ename")
    text = re.sub(r"[^ <>'\"]*/tour/lake", "LAKE", _words(text))
    text = re.sub(r"\b01[0-9A-Z]{12,24}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?( UTC|Z|\+00:00)?", "TIME", text)
    return re.sub(r"\d+(\.\d+)? (kB|B)\b", "SIZE", text)


def _words(html: str) -> str:
    """Return the words of HTML: how it is drawn may change without a new execution of the notebook."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL).split())


def test_notebook_shows_what_its_cells_return(tmp_path: Path) -> None:
    kept, executed = (script.nbformat.read(script.NOTEBOOK, as_version=4) for _ in range(2))
    for cell in executed.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    script.execute(executed, tmp_path)
    assert outputs(executed) == outputs(kept), "run `python -m scripts.notebook`"
    shown = [output.data for cell in executed.cells for output in cell.get("outputs", ())]
    assert sum("text/html" in data for data in shown) >= 10


def test_page_is_that_of_the_notebook() -> None:
    kept = script.nbformat.read(script.NOTEBOOK, as_version=4)
    assert _words(script.PAGE.read_text()) == _words(script.page_of(kept)), "run `python -m scripts.notebook --page`"
