"""The numbered logs that doctor checks: what their entries are, and which refs need them."""

from dataclasses import dataclass
from urllib.parse import unquote

from anabranch.errors import InvalidNameError
from anabranch.ids import BranchName
from anabranch.repo.doctor.inventory import name_of
from anabranch.repo.doctor.rebuild import Entry, OtherEntry
from anabranch.repo.log import codec
from anabranch.repo.log.clones import CLONES
from anabranch.repo.log.config import BRANCHES, RUNS, RepoConfig
from anabranch.repo.log.entries import LogEntry
from anabranch.repo.log.numbered import NumberedLog
from anabranch.repo.log.origins import ORIGIN
from anabranch.repo.refs.tags import TAGS, TagInfo, decode_tag
from anabranch.storage import documents

__all__ = ["CheckedLog", "list_logs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLog:
    """One log with its name for the report (`label`).

    `branch` is set for the log of a branch or of a run, which has a hidden branch. `is_tag` marks the log of a tag. Of
    the other logs, doctor reads only the numbers of the entries.
    """

    log: NumberedLog
    label: str
    name: str
    branch: BranchName | None = None
    is_tag: bool = False

    @classmethod
    def of_branch(cls, log: NumberedLog, branch: BranchName) -> "CheckedLog":
        name = name_of(branch)
        label = name if branch.run_id is not None else f"branch '{name}'"
        return cls(log=log, label=label, name=name, branch=branch)

    def decode(self, data: bytes, number: int) -> Entry:
        path = self.log.path(number)
        if self.is_tag:
            return decode_tag(data, path=path)
        if self.branch is not None:
            return codec.decode_entry(data, path=path)
        fields = documents.load(data, path=path)
        with documents.damage_named(path):
            return OtherEntry(number=int(fields["number"]))

    def is_own(self, entry: Entry, number: int) -> bool:
        """Return whether an entry belongs to this log and has this number, by its own fields."""
        match entry:
            case LogEntry():
                return (entry.branch, entry.number) == (self.branch, number)
            case TagInfo():
                return (entry.name, entry.number) == (self.name, number)
            case OtherEntry():
                return entry.number == number

    def refs(self, number: int, newest: int) -> tuple[str, ...]:
        """Return the refs that cannot be read without an entry."""
        if self.branch is None and not self.is_tag:
            return ()
        # Without its newest entry the branch or tag itself cannot be read. Without an older one only refs to that
        # version fail.
        if number == newest:
            return (self.name,)
        is_public = self.branch is not None and not self.branch.is_internal
        return (f"{self.name}@v{number}",) if is_public else ()


def list_logs(config: RepoConfig) -> tuple[list[CheckedLog], list[str]]:
    """Return the logs, and the folders among them whose names are not valid names of logs."""
    logs, unknown = [], []
    for folder in (BRANCHES, RUNS, TAGS, CLONES):
        for path in sorted(config.store.list_folders(folder)):
            try:
                logs.append(_checked_log(NumberedLog(config.store, path), folder, path.rpartition("/")[2]))
            except InvalidNameError:
                unknown.append(path)
    origin = NumberedLog(config.store, ORIGIN)
    return [*logs, CheckedLog(log=origin, label="the origin of this clone", name=ORIGIN)], unknown


def _checked_log(log: NumberedLog, folder: str, name: str) -> CheckedLog:
    if folder == BRANCHES:
        return CheckedLog.of_branch(log, BranchName(unquote(name)))
    if folder == RUNS:
        return CheckedLog.of_branch(log, BranchName.of_run(name))
    if folder == TAGS:
        return CheckedLog(log=log, label=f"tag '{name}'", name=name, is_tag=True)
    return CheckedLog(log=log, label=f"clone {name}", name=name)
