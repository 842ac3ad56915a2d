"""Load a file into a table of a branch."""

from dataclasses import dataclass

from anabranch.errors import InvalidInputError
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.server.ui.lake import LoadOrder
from anabranch.server.ui.refs import RefChoices, list_choices
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

__all__ = ["PAGES", "LoadView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadView:
    table: str
    branch: str
    choices: RefChoices


def show_load(visit: Visit) -> Shown:
    """Show the form to load a file."""
    view = LoadView(table=visit.query("table"), branch=visit.query("branch") or MAIN, choices=list_choices(visit))
    return Shown("loads/form.html", view)


def load_file(visit: Visit) -> Redirect:
    """Load a file as one commit, or change nothing."""
    file = visit.file("file")
    if file is None:
        raise InvalidInputError("the form has no file", hint="choose a file")
    table, branch = str(TableKey.parse(visit.field("table"))), str(BranchName.parse_public(visit.field("branch")))
    order = LoadOrder(
        table=table,
        branch=branch,
        file=file.file,
        name=file.filename or "file",
        is_incremental=visit.field("mode") != "replace",
        primary_key=tuple(name.strip() for name in visit.field("primary_key").split(",") if name.strip()),
    )
    return Redirect(f"/tables/{table}", visit.lake.host.load(order), {"ref": branch})


PAGES: tuple[Page, ...] = (
    get("/load", show_load),
    # The service accepts large bodies at paths with this end only.
    post("/import", load_file, writes="branch"),
)
