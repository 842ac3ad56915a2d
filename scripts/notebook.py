"""Execute `examples/tour.ipynb`, keep its outputs in the file, and write them as a page of the docs.

python -m scripts.notebook            execute it, and write both files
python -m scripts.notebook --page     only write the page from the outputs that are kept
"""

import argparse
import html
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat as untyped

from anabranch.display import html_style

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "tour.ipynb"
PAGE = ROOT / "docs" / "notebook.md"
# Its functions have no types.
nbformat: Any = untyped
_HEAD = """# Notebook

This page is `examples/tour.ipynb` with its outputs. `python -m scripts.notebook` executes the notebook and writes
the page.
"""
# The style that every output repeats. Drawings have another one of their own.
_STYLE = re.compile(r"<style>\s*\.anabranch \{.*?</style>", re.DOTALL)
_FRAME = """
.notebook-output { overflow-x: auto; margin: 1em 0; position: relative; }
.md-typeset .notebook-output table { margin: 0; }
.md-typeset .notebook-output table:not([class]) :is(th, td) { min-width: 0; padding: .3rem .6rem; }
.md-typeset .anabranch table.grid { display: table; }
"""


def execute(notebook: Any, folder: Path) -> None:
    """Execute all cells in a new kernel whose working folder is `folder`. Raise CellExecutionError if one fails."""
    from nbclient import NotebookClient

    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()


def page_of(notebook: Any) -> str:
    """Return the page of a notebook: its texts, code and outputs, with HTML where a value has it."""
    parts = [_HEAD, _site_style()]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [_shown(output) for output in cell.outputs]
    return "\n\n".join(parts) + "\n"


def _site_style() -> str:
    """Return the style of all outputs once. The colours follow the scheme of the site, which a reader can switch."""
    light, dark = re.findall(r"\.anabranch \{\s*(--paper.*?)\}", html_style(), re.DOTALL)
    schemes = " ".join(
        f"[data-md-color-scheme={name}] .anabranch {{{colours}}}"
        for name, colours in (("default", light), ("slate", dark))
    )
    return "<style>" + re.sub(r"\s*\n\s*", " ", f"{html_style()} {schemes} {_FRAME}") + "</style>"


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    if output.output_type == "error":
        return f"```text\n{output.ename}: {output.evalue}\n```"
    if "text/html" in output.data:
        # In one line: an empty line would end the block of HTML in Markdown.
        shown = re.sub(r"\s*\n\s*", " ", _STYLE.sub("", output.data["text/html"]))
        return f'<div class="notebook-output">{shown}</div>'
    return f"<pre>{html.escape(output.data['text/plain'])}</pre>"


def main() -> None:
    parser = argparse.ArgumentParser(description="Execute the notebook of the tour.")
    parser.add_argument("--page", action="store_true", help="only write the page")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    if not parser.parse_args().page:
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
            text = nbformat.writes(notebook).replace(folder, "/home/ada")
        notebook = nbformat.reads(text, as_version=4)
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # the times of one execution
        nbformat.write(notebook, NOTEBOOK)
    PAGE.write_text(page_of(notebook), encoding="utf-8")


if __name__ == "__main__":
    main()
