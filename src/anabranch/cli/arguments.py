"""Arguments that many commands share, and how their text is read."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, overload

import typer

from anabranch.errors import InvalidInputError
from anabranch.ids import MAIN, Ref

if TYPE_CHECKING:
    from anabranch.format.dataset import Dataset

__all__ = [
    "Actor",
    "AfterName",
    "AsJson",
    "Branch",
    "BranchOption",
    "DatasetRef",
    "DatasetSource",
    "DryRun",
    "Engine",
    "Grace",
    "KeepLast",
    "KeepNewerThan",
    "Limit",
    "MaxListed",
    "Message",
    "NamePrefix",
    "REF_FORMS",
    "RefOption",
    "Repo",
    "StorageOptions",
    "TableName",
    "Uri",
    "example",
    "open_dataset",
    "open_damaged_dataset",
    "parse_duration",
    "parse_pairs",
    "parse_ref",
]

Uri = Annotated[
    str,
    typer.Argument(
        metavar="URI", help="The dataset: a folder, or an s3://, gs:// or az:// address.", show_default=False
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        "-o",
        metavar="KEY=VALUE",
        envvar="ANABRANCH_STORAGE_OPTIONS",
        show_default=False,
        help="An option of the object store in Lance's spelling, such as aws_region=us-east-1; repeat it for more."
        " Better give secrets in the environment variable, separated by spaces: others can see command lines.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Branch = Annotated[str, typer.Option("--branch", "-b", metavar="NAME", help="The branch of the dataset to work on.")]
_DATASET_REF_FORMS = (
    "A version (7), a branch, a tag, or a version of a branch (dev@v7); by default main's newest version."
)
DatasetRef = Annotated[str | None, typer.Option("--ref", metavar="REF", show_default=False, help=_DATASET_REF_FORMS)]
DatasetSource = Annotated[
    str | None, typer.Option("--from", metavar="REF", show_default=False, help=_DATASET_REF_FORMS)
]

REF_FORMS = (
    "A branch, a tag, a commit, main~3, main^2, main@v7 or main@{2026-11-15T10:00:00Z}; by default the current branch."
)

Repo = Annotated[
    str | None,
    typer.Option(
        "--repo",
        metavar="URI",
        show_default=False,
        help="The repository: a folder, or an s3://, gs:// or az:// address; by default ANABRANCH_REPO, else the one"
        " that this folder remembers.",
    ),
]
RefOption = Annotated[
    str | None,
    typer.Option("--ref", metavar="REF", show_default=False, help=REF_FORMS),
]
BranchOption = Annotated[
    str | None,
    typer.Option("--branch", "-b", metavar="NAME", show_default=False, help="Another branch than the current one."),
]
Message = Annotated[
    str | None,
    typer.Option("--message", "-m", metavar="TEXT", show_default=False, help="Message of the new commit."),
]
Engine = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="What matches rows: auto, local, or spark for many machines."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of rows to show.")]
MaxListed = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", metavar="N", min=1, show_default=False, help="Maximum number to list (default: all)."
    ),
]
NamePrefix = Annotated[
    str | None,
    typer.Option("--prefix", metavar="TEXT", show_default=False, help="Only names or ids that start with this."),
]
AfterName = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="NAME", show_default=False, help="Continue after this name or id, the last of another page."
    ),
]
Actor = Annotated[
    str | None,
    typer.Option(
        "--actor",
        metavar="NAME",
        show_default=False,
        help="Who does it, for the record; by default ANABRANCH_ACTOR, else your user name.",
    ),
]
KeepNewerThan = Annotated[
    str | None,
    typer.Option(
        "--keep-newer-than",
        metavar="TIME",
        show_default=False,
        help="Of each branch keep the commits that are younger, such as 30d or 12h, and let the others go.",
    ),
]
KeepLast = Annotated[
    int | None,
    typer.Option(
        "--keep-last",
        metavar="N",
        min=1,
        show_default=False,
        help="Number of commits to keep on each branch, whatever their age.",
    ),
]
Grace = Annotated[
    str | None,
    typer.Option(
        "--grace",
        metavar="TIME",
        show_default=False,
        help="How long what became unreachable stays, such as 1d, which is the default, or 30m.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: report what would change.")]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table, such as in_c_sales.orders.", show_default=False)
]


def example(*commands: str) -> str:
    """The examples below a command's help, kept in their lines."""
    lines = "\n".join(f"  anabranch {command}" for command in commands)
    return f"\b\nExample:\n{lines}"


def parse_pairs(texts: Sequence[str] | None, *, option: str) -> dict[str, str]:
    """Read KEY=VALUE texts; a value may hold further '='. No text is repeated in an error, as it may be a secret."""
    pairs: dict[str, str] = {}
    for number, text in enumerate(texts or (), start=1):
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise InvalidInputError(f"{option} number {number} is not of the form KEY=VALUE", hint="put a '=' in it")
        if key in pairs:
            raise InvalidInputError(f"{option} gives {key!r} twice", hint="leave one out")
        pairs[key] = value
    return pairs


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@overload
def parse_duration(text: str, *, option: str) -> timedelta: ...


@overload
def parse_duration(text: str | None, *, option: str) -> timedelta | None: ...


def parse_duration(text: str | None, *, option: str) -> timedelta | None:
    """Read a time span such as 30d; None stays None."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if found is None:
        raise InvalidInputError(
            f"{option} {text!r} is not a time span", hint="pass a number and a unit: 90s, 30m, 12h, 30d or 4w"
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def parse_ref(text: str | None) -> int | str | tuple[str | None, int | None] | None:
    """Parse a position in the history of one dataset."""
    if text is None:
        return None
    if re.fullmatch("[0-9]{1,20}", text):
        return int(text)
    ref = Ref.parse(text)
    if ref.steps or ref.at is not None:
        raise InvalidInputError(
            f"ref {text!r} needs a repository's history", hint="use a version, a branch, a tag, or dev@v7"
        )
    return text if ref.version is None else (ref.name, ref.version)


def open_dataset(uri: str, storage_options: Sequence[str] | None, *, branch: str = MAIN) -> "Dataset":
    import anabranch

    dataset = anabranch.dataset(uri, parse_pairs(storage_options, option="--storage-option"))
    return dataset if branch == MAIN else dataset.branch_checkout(branch)


def open_damaged_dataset(uri: str, storage_options: Sequence[str] | None) -> "Dataset":
    """A handle for commands that must work where Lance cannot open the dataset any more."""
    from anabranch.format import dataset

    return dataset.open_damaged_dataset(uri, parse_pairs(storage_options, option="--storage-option"))
