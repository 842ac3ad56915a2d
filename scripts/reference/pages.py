"""The pages as the code wants them."""

from pathlib import Path

from scripts.reference.commands import write_commands
from scripts.reference.python import write_python
from scripts.reference.routes import write_routes

__all__ = ["DOCS", "written"]

DOCS = Path(__file__).resolve().parents[2] / "docs"


def written() -> dict[str, str]:
    """The pages as the code wants them, by name."""
    return {
        "cli.md": write_commands((DOCS / "cli.md").read_text(encoding="utf-8")),
        "http.md": write_routes((DOCS / "http.md").read_text(encoding="utf-8")),
        "api.md": write_python(),
    }
