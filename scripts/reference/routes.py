"""The list of all endpoints of the service."""

import tempfile
from pathlib import Path

from scripts.reference.markdown import BEGIN, END, cell, first_paragraph

__all__ = ["routes", "write_routes"]


def routes() -> list[tuple[str, str, str]]:
    """Every endpoint: its method, its path, and what it does in one line."""
    from anabranch.server.app import create_app
    from anabranch.server.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        described = create_app(Settings(data=Path(folder))).openapi()["paths"]
    return [
        (method.upper(), path, description.get("description") or description.get("summary") or "")
        for path, methods in described.items()
        for method, description in methods.items()
    ]


def write_routes(page: str) -> str:
    """The page with the list of all endpoints between its marks."""
    # Not a table: a path is so long that the second column would have two words in a line.
    entries = "\n".join(
        f"- `{method} {path}`: {cell(first_paragraph(description))}" for method, path, description in routes()
    )
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{entries}\n\n{END}{after}"
