"""`anabranch doctor`: check that everything in a repository can be read."""

from typing import Annotated

import typer

from anabranch.cli.command import WRITES, Here, command, group
from anabranch.cli.health import health_answer
from anabranch.cli.options import TableNames
from anabranch.cli.output import Answer

__all__ = ["app"]

app = group()


@command(app, "doctor", "doctor", "doctor --rows --table shop.orders", "doctor --repair", on=WRITES)
def doctor(
    here: Here,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired. No committed data is deleted.")
    ] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Also read every row, and check that primary keys are unique and not null.")
    ] = False,
    table: TableNames = None,
) -> Answer:
    """Check that everything in the repository can be read.

    doctor also works on a repository that other commands cannot open. It changes nothing without --repair. The exit
    code is 1 if there is a problem that was not repaired.
    """
    from anabranch.bootstrap import open_damaged_repository

    settings = here.settings
    repository = open_damaged_repository(
        settings.repository, storage_options=here.storage_options, actor=settings.actor
    )
    with here.output.progress("checking") as progress:
        report = repository.doctor(repair=repair, tables=table or None, rows=rows, progress=progress)
    return health_answer(report)
