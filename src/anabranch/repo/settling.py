"""After publishing: let every Lance tool see the published state too.

A courtesy. Readers of the repository never need it, a failure changes nothing that was published, and the next writer
makes up for it.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from anabranch.errors import AnabranchError, ForeignWriteError
from anabranch.format import staging
from anabranch.ids import BranchName, TableKey
from anabranch.repo.models import TableEntry
from anabranch.repo.publish import Changes
from anabranch.repo.records import Records
from anabranch.repo.tables import owns

__all__ = ["ForeignWrite", "settle_table", "try_to_settle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWrite:
    """Somebody wrote to a managed table with another tool; it was kept and waits for a decision."""

    table: str
    home: str
    problem: str


def try_to_settle(records: Records, branch: BranchName, changes: Changes) -> tuple[ForeignWrite, ...]:
    """Settle what was just published; report strangers' writes, and leave every other failure to the next writer."""
    found = []
    for key, entry in changes.items():
        if entry is None:
            continue
        try:
            settle_table(records, branch, key, known=entry)
        except ForeignWriteError as err:
            found.append(ForeignWrite(table=str(key), home=str(branch), problem=err.problem))
        except AnabranchError:
            continue
    return tuple(found)


def settle_table(
    records: Records,
    branch: BranchName,
    key: TableKey,
    *,
    known: TableEntry | None = None,
    force: bool = False,
) -> None:
    """Make the newest published version of a table its home's newest ordinary one.

    Whoever restores looks at the branch again afterwards: a slower writer would else put an older version on top.
    """
    entry = known or records.find_table(branch, key)
    while entry is not None and owns(branch, entry.home):
        home = records.context.home_of(entry)
        if force:
            staging.settle_by_force(home, entry.version)
        else:
            staging.settle(home, entry.version, expected_head=entry.head)
        newer = records.find_table(branch, key)
        if newer is None or (newer.home, newer.version) == (entry.home, entry.version):
            return
        entry = newer
