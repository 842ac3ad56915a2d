"""Arguments and options that several commands have, and how their text is parsed.

The options of almost every command, such as --repo, are in `command.py`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer

from anabranch.errors import InvalidInputError
from anabranch.ids import Ref


def argument(metavar: str, text: str, *, default: Any = ..., **more: Any) -> Any:
    """Declare an argument, which is required without a default. `text` is its help, which describes its default too."""
    return typer.Argument(default, metavar=metavar, show_default=False, help=text, **more)


def option(names: str, metavar: str, text: str, *, default: Any = None, **more: Any) -> Any:
    """Declare an option with a value. `names` are its names, separated by spaces, and `text` is its help."""
    return typer.Option(default, *names.split(), metavar=metavar, help=text, **more)


def flag(names: str, text: str, **more: Any) -> Any:
    """Declare an option without a value, which is off by default."""
    return typer.Option(False, *names.split(), help=text, **more)


REF_FORMS = (
    "A branch, a tag, a commit, or an older state such as main~3 (default: the current branch). 'anabranch help refs'"
    " lists all forms."
)
_DATASET_REF_FORMS = (
    "A version (7), a branch, a tag, or a version of a branch (dev@v7) (default: the newest version of main)."
)

Uri = Annotated[str, argument("URI", "Dataset: a folder, or an s3://, gs:// or az:// address.")]
DatasetBranch = Annotated[str, option("--branch -b", "NAME", "Branch of the dataset to work on.")]
DatasetRef = Annotated[str | None, option("--ref", "REF", _DATASET_REF_FORMS)]
DatasetSource = Annotated[str | None, option("--from", "REF", _DATASET_REF_FORMS)]
RefOption = Annotated[str | None, option("--ref", "REF", REF_FORMS)]
Message = Annotated[str | None, option("--message -m", "TEXT", "Message of the new commit.")]
Engine = Annotated[
    str, option("--engine", "NAME", "Engine that compares rows: local, spark, or auto (spark for many rows).")
]
Limit = Annotated[int, option("--limit -n", "N", "Maximum number of entries to show.", min=1)]
DryRun = Annotated[bool, flag("--dry-run", "Report what would change. Change nothing.")]
TableName = Annotated[str, argument("TABLE", "Name of the table, such as shop.orders.")]
TableNames = Annotated[list[str] | None, option("--table -t", "TABLE", "Only this table. Repeatable.")]
Where = Annotated[str | None, option("--where", "SQL", "Only rows for which this condition is true.")]
Columns = Annotated[str | None, option("--columns -c", "NAME,...", "Only these columns, in this order.")]


@dataclass(frozen=True, kw_only=True)
class ListPage:
    """The options that select a page of a list."""

    prefix: str | None = option("--prefix", "TEXT", "List only entries with a name or id that starts with TEXT.")
    after: str | None = option(
        "--after", "NAME", "Next page of the list. NAME is the last name or id that the previous page shows."
    )
    limit: int | None = option("--limit -n", "N", "Maximum number of entries to list (default: all).", min=1)


@dataclass(frozen=True, kw_only=True)
class KeepPolicy:
    """The options about what to keep: commits of a repository, or versions of a dataset."""

    keep_newer_than: str | None = option(
        "--keep-newer-than",
        "TIME",
        "Keep the data of commits that are younger than TIME, such as 30d or 12h. The data of older commits is"
        " deleted, except for the newest commit of each branch and the commits of tags and clones. For a dataset,"
        " versions count instead of commits.",
    )
    keep_last: int | None = option(
        "--keep-last",
        "N",
        "Keep the data of the newest N commits of each branch, also if they are old. For a dataset, versions count"
        " instead of commits.",
        min=1,
    )
    grace: str | None = option(
        "--grace",
        "TIME",
        "Grace period: keep data that is younger than TIME, such as 30m, even if it is not needed (default: 1d).",
    )

    def parsed(self) -> dict[str, Any]:
        """Return the arguments of `gc` and `storage_report`."""
        age, grace = self.keep_newer_than, self.grace
        return {
            "keep_newer_than": None if age is None else parse_duration(age, option="--keep-newer-than"),
            "keep_last": self.keep_last,
            "grace": None if grace is None else parse_duration(grace, option="--grace"),
        }


def parse_names(text: str | None) -> list[str] | None:
    """Split names that are separated by commas. None stays None."""
    return None if text is None else [name.strip() for name in text.split(",")]


def parse_pairs(
    texts: Sequence[str] | None, *, option: str, form: str = "KEY=VALUE", example: str | None = None
) -> dict[str, str]:
    """Parse KEY=VALUE texts. A value may contain '='. An error repeats a text only if it cannot be a secret."""
    pairs: dict[str, str] = {}
    for number, text in enumerate(texts or (), start=1):
        key, separator, value = text.partition("=")
        if not separator or not key:
            # Not an option but an argument: its name is not written.
            name = f"{option} " if option.startswith("--") else ""
            shown = f"number {number}" if form == "KEY=VALUE" else repr(text)
            raise InvalidInputError(
                f"{option} {shown} is not of the form {form}", hint=f"write it like {name}{example or form}"
            )
        if key in pairs:
            raise InvalidInputError(f"{option} gives {key!r} twice", hint="leave one out")
        pairs[key] = value
    return pairs


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str, *, option: str) -> timedelta:
    """Parse a time span such as 30d."""
    # At most six digits, so that weeks fit too: a timedelta raises OverflowError above 999,999,999 days.
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
    # A number is always a version: new branches and tags cannot have a name of digits only.
    if re.fullmatch("[0-9]{1,20}", text):
        return int(text)
    ref = Ref.parse(text)
    if ref.steps or ref.at is not None:
        raise InvalidInputError(
            f"ref {text!r} needs a repository's history", hint="use a version, a branch, a tag, or dev@v7"
        )
    return text if ref.version is None else (ref.name, ref.version)
