"""Declare commands: their examples, the options that many commands share, and the answers that they return.

`@command(app, "create", "tag create v1.0", on=WRITES)` adds a function to an app. The function gets a `Here` first: the
repository, opened when it is first used, and the output. The shared options of the command are declared here once, and
its help shows them in a section of their own. A parameter whose type is a dataclass is a set of options, one for each
field.
"""

import inspect
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from anabranch.cli.completion import add_completion, without_open_option
from anabranch.cli.options import flag, option, parse_pairs
from anabranch.cli.output import INTERRUPTED, USAGE, Answer, Output
from anabranch.config import (
    BRANCH_VARIABLE,
    REPOSITORY_VARIABLE,
    Memory,
    Settings,
    Source,
    configured_options,
    load_settings,
    overriding_variables,
)
from anabranch.display import short_id
from anabranch.errors import AnabranchError, BranchNotFoundError, RepositoryNotFoundError
from anabranch.ids import MAIN

if TYPE_CHECKING:
    from anabranch.format.dataset import Dataset
    from anabranch.repo.refs.branches import BranchInfo
    from anabranch.repo.repository import Repository
    from anabranch.repo.snapshot import Snapshot

_PANEL = "Common options"
# The form in which Typer shows the smallest value of a number: "[default: 20; x>=1]". A reader cannot know what x is.
_RANGE = re.compile(r"  \[x>=\d+\]|; x>=\d+(?=\])")

Shared = Literal["branch", "repo", "actor", "storage_option", "as_json"]


@dataclass(frozen=True, kw_only=True)
class _SharedOptions:
    """The options that many commands share. Each command takes some of them."""

    branch: str | None = option("--branch -b", "BRANCH", "Branch to work on (default: the current branch).")
    repo: str | None = option(
        "--repo",
        "URI",
        "Repository: a folder, or an s3://, gs:// or az:// address. Default: the variable ANABRANCH_REPO, then the"
        " repository that 'init' or 'switch' set for the current folder, or whose folder you are in.",
    )
    actor: str | None = option(
        "--actor",
        "NAME",
        "Name of the actor: who makes the change. The log shows this name. Default: the variable ANABRANCH_ACTOR, then"
        " the setting 'actor' of 'anabranch config', then your user name.",
    )
    storage_option: list[str] | None = option(
        "--storage-option -o",
        "KEY=VALUE",
        "Option of the object store, such as aws_region=us-east-1. Repeatable. Do not pass secrets here, because other"
        " users can see command lines. For secrets, set the variable ANABRANCH_STORAGE_OPTIONS to 'KEY=VALUE"
        " KEY=VALUE'.",
        envvar="ANABRANCH_STORAGE_OPTIONS",
        show_envvar=False,
    )
    as_json: bool = flag("--json", "Print one JSON document instead of tables.")


READS: tuple[Shared, ...] = ("repo", "storage_option", "as_json")
WRITES: tuple[Shared, ...] = ("repo", "actor", "storage_option", "as_json")
# The options of a command that reads the current branch, or commits to it.
READS_BRANCH: tuple[Shared, ...] = ("branch", *READS)
COMMITS: tuple[Shared, ...] = ("branch", *WRITES)
# A repository that does not exist yet, a dataset that is named by its address, and a service with a folder of its own.
NEW: tuple[Shared, ...] = ("actor", "storage_option", "as_json")
DATASET: tuple[Shared, ...] = ("storage_option", "as_json")
SERVICE: tuple[Shared, ...] = ("as_json",)


class Here:
    """The context of a command: the repository and branch of its options, and its output."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._begun_at = time.time_ns() // 1_000  # in microseconds, like all times
        self.actor: str | None = given.get("actor")
        # As the option names it; `repository.branch` is the branch to work on.
        self.branch: str | None = given.get("branch")
        self.as_json: bool = given.get("as_json", False)
        self.output = Output(self.as_json)

    @cached_property
    def storage_options(self) -> dict[str, str]:
        given = parse_pairs(self._given.get("storage_option"), option="--storage-option")
        return configured_options() | given

    @cached_property
    def settings(self) -> Settings:
        return load_settings(repository=self._given.get("repo"), branch=self.branch, actor=self.actor)

    @cached_property
    def repository(self) -> "Repository":
        from anabranch.bootstrap import bind_repository  # Lance takes a while to load

        options, settings = self.storage_options, self.settings
        return bind_repository(
            settings.repository, branch=settings.branch, actor=settings.actor, storage_options=options
        )

    def describe_interruption(self) -> str:
        """Return a message about the state after Ctrl-C: a commit may have been published just before."""
        # The cached property is not there if no repository was opened. Nothing was committed then, and reading the
        # property would open one.
        if "repository" in self.__dict__:
            newest = next(iter(self.repository.iter_graph()), None)
            # The commit may also be of another writer, so the message asks to check the log.
            if newest is not None and newest.created_at >= self._begun_at:
                return f"interrupted; {newest.branch} was at {short_id(newest.id)} already, check the log"
        return "interrupted; nothing was committed"

    def dataset(self, uri: str, *, branch: str = MAIN) -> "Dataset":
        import anabranch

        dataset = anabranch.dataset(uri, self.storage_options)
        return dataset if branch == MAIN else dataset.branch_checkout(branch)

    def damaged_dataset(self, uri: str) -> "Dataset":
        """Return a handle for commands that must work where Lance cannot open the dataset any more."""
        from anabranch.format import dataset

        return dataset.open_damaged_dataset(uri, self.storage_options)

    def write_file(self, location: str, text: str) -> None:
        """Write a drawing or a page to a local file, or to the store of the repository."""
        from anabranch.storage import open_files
        from anabranch.storage.uris import normalise_uri

        folder, _, name = normalise_uri(location).rpartition("/")
        open_files(folder or "/", self.repository.storage_options).put(name, text.encode())

    def current(self) -> "BranchInfo":
        return self.repository.branch_get(self.repository.branch)

    def snapshot(self, ref: str | None) -> "Snapshot":
        """Return the state of a ref, by default of the current branch."""
        return self.repository.snapshot() if ref is None else self.repository.snapshot_of(ref)

    @contextmanager
    def explaining(self, given: Mapping[str, Any]) -> Iterator[None]:
        """Add to an error the setting that names the missing repository or branch, unless `given` names it."""
        try:
            yield
        except (RepositoryNotFoundError, BranchNotFoundError) as err:
            # The cached property is not there if no repository is named, and reading it would raise again.
            settings: Settings | None = self.__dict__.get("settings")
            explained = None if settings is None else _explained(err, settings, given)
            if explained is None:
                raise
            raise explained from err


def _explained(
    err: RepositoryNotFoundError | BranchNotFoundError, settings: Settings, given: Mapping[str, Any]
) -> AnabranchError | None:
    if isinstance(err, BranchNotFoundError):
        named = [each for value in given.values() for each in (value if isinstance(value, list) else [value])]
        return None if settings.branch in named else _explained_branch(err, settings)
    # The error may be about another repository, such as the source of a clone.
    is_from_variable = settings.repository_source is Source.ENVIRONMENT and repr(settings.repository) in err.problem
    return err.reworded(f"{err.problem}, which {REPOSITORY_VARIABLE} names") if is_from_variable else None


def _explained_branch(err: BranchNotFoundError, settings: Settings) -> AnabranchError | None:
    name = settings.branch
    if f"'{name}'" not in err.problem or name == err.renamed_to:
        return None
    if settings.branch_source is Source.ENVIRONMENT:
        where, hint = f"by {BRANCH_VARIABLE}", "set the variable to another branch, or unset it"
    elif settings.branch_source is Source.FOLDER and settings.memory is not None:
        where = f"of this folder ({settings.memory.file})"
        hint = f"switch with 'anabranch switch {err.renamed_to or MAIN}'"
        if err.renamed_to is None:
            hint += f", or bring it back with 'anabranch branch restore {name}'"
    else:
        return None
    return BranchNotFoundError(f"{err.problem}, and it is the current branch {where}", hint=hint)


# Typer converts each value of an argument or option by pydantic, whose import takes longer than the work of a short
# command. Text, whole numbers and lists of text need no such help. Any other value, and any wrong one, is left to
# Typer, so that errors are the same.
_OTHER = object()


def _with_plain_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # The attribute in which Typer keeps its own conversion.
        if getattr(parameter, "_runtime_param", _OTHER) is None:
            parameter._runtime_param = _PlainValues(parameter)
    return parameters


class _PlainValues:
    """Replaces Typer's conversion of one parameter until a value is not plain."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        found = _convert(value, self._parameter)
        if found is not _OTHER:
            return found
        # Typer makes its own conversion only if this is None.
        self._parameter._runtime_param = None
        try:
            return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter as err:
            # Without the second clause, which describes the parser.
            err.message = err.message.partition(",")[0].replace("Input", repr(value))
            raise
        finally:
            self._parameter._runtime_param = self


def _convert(value: Any, parameter: Any) -> Any:
    """Convert a value like Typer, or return `_OTHER` if it is not plain."""
    kind = parameter.type_descriptor.annotation
    match value:
        case None:
            return () if parameter.nargs == -1 or getattr(parameter, "multiple", False) else None
        case str() if kind is str:
            return value
        case list() | tuple() if kind == list[str] and all(isinstance(item, str) for item in value):
            return list(value)
        case _ if kind is int:
            return _number(value, parameter.type_descriptor.parameter_info)
    return _OTHER


def _number(value: Any, limits: Any) -> Any:
    # Only plain digits: int() also accepts spaces, underscores and digits of other scripts, which are left to Typer.
    if not isinstance(value, int | str) or not re.fullmatch("-?[0-9]{1,18}", str(value)):
        return _OTHER
    number = int(value)
    is_low = limits.min is not None and number < limits.min
    is_high = limits.max is not None and number > limits.max
    return _OTHER if is_low or is_high or limits.clamp else number


class CommandInterruptedError(typer.TyperException):
    """A command that was stopped by Ctrl-C."""

    exit_code = INTERRUPTED


class UnknownCommandError(typer.TyperException):
    """A command that does not exist, with a hint that names the one to use."""

    exit_code = USAGE

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class _Command(TyperCommand):
    """A command whose help shows the shared options in a section of their own."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_values(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Only while a shell completes: in a real command line, an option without its value is an error.
        return super().parse_args(ctx, without_open_option(args, self.params) if ctx.resilient_parsing else args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        names = [(str(each.metavar), each.required or str(each.metavar).startswith("[")) for each in arguments]
        return [*(name if is_complete else f"[{name}]" for name, is_complete in names), "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], _PANEL: []}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((str(parameter.metavar).strip("[]."), getattr(parameter, "help", "")))
                continue
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            is_shared = getattr(parameter, "rich_help_panel", None) == _PANEL or parameter.name == "help"
            name, text = record
            sections[_PANEL if is_shared else "Options"].append((name, _RANGE.sub("", text)))
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class PlainGroup(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_values(super().get_params(ctx))


class ListGroup(PlainGroup):
    """A group that lists without a command: `anabranch branch` is `anabranch branch list`."""

    # The command that a user of git means by `branch dev`, which leaves it out.
    otherwise: ClassVar[str | None] = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if ctx.resilient_parsing:  # a shell completes the name of the command
            is_list = False
        return super().parse_args(ctx, ["list", *args] if is_list else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as err:
            # Typer has found a command with a similar name, which is more likely than a missing command.
            if self.otherwise is None or "Did you mean" in err.format_message():
                raise
            typed = " ".join(hide_storage_options(args))
            hint = f"use '{self.otherwise} {typed}', or see '{ctx.command_path} --help'"
            raise UnknownCommandError(err.format_message().rstrip("."), hint=hint) from err


_STORAGE_OPTIONS = ("-o", "--storage-option")
_STORAGE_OPTION = re.compile(r"((?:--storage-option=|-o)?[^=]+=).*", re.DOTALL)


def hide_storage_options(words: Sequence[str]) -> list[str]:
    """Return the words of a command line without the values of storage options, which may be secrets."""
    shown: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        is_option = before in _STORAGE_OPTIONS or word.startswith(("-o", "--storage-option="))
        shown.append(_STORAGE_OPTION.sub(r"\1...", word) if is_option else word)
    return shown


def group(*, help: str | None = None, cls: type[TyperGroup] = PlainGroup) -> typer.Typer:  # noqa: A002 - Typer's name
    """Return an app for commands. It shows help as plain text, without rich."""
    return typer.Typer(cls=cls, help=help, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


def add_group(app: typer.Typer, name: str, *, help: str, otherwise: str | None = None) -> typer.Typer:  # noqa: A002
    """Add a group that lists if no command is given. `otherwise` is the command to suggest for other words."""
    made = group(help=help, cls=type(f"_{name}", (ListGroup,), {"otherwise": otherwise}))
    app.add_typer(made, name=name)
    return made


def command(
    app: typer.Typer, name: str, *examples: str, on: Sequence[Shared] = READS
) -> Callable[[Callable[..., Answer | None]], Callable[..., Answer | None]]:
    """Add a function as a command. `on` are the shared options that it takes; `examples` come below its help."""

    def add(act: Callable[..., Answer | None]) -> Callable[..., Answer | None]:
        parameters, sets = _parameters(act, on)

        def run(**given: Any) -> None:
            here = Here({option: given.pop(option) for option in on})
            arguments = dict(given)
            for name, kind in sets.items():
                arguments[name] = kind(**{field.name: arguments.pop(field.name) for field in fields(kind)})
            try:
                with here.explaining(given):
                    answer = act(here, **arguments)
                if answer is not None:
                    here.output.show(answer)
            except KeyboardInterrupt as err:
                raise CommandInterruptedError(here.describe_interruption()) from err
            # After the answer is shown: an exit code of an answer is a result, such as a finding, and not an error.
            if answer is not None and answer.exit_code:
                raise typer.Exit(answer.exit_code)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__doc__ = act.__doc__
        shown = "\n".join(f"  anabranch {example}" for example in examples)
        # \b keeps the examples in their lines.
        app.command(name, epilog=f"\b\nExample:\n{shown}", cls=_Command)(run)
        return act

    return add


def _parameters(
    act: Callable[..., Any], shared: Sequence[Shared]
) -> tuple[list[inspect.Parameter], dict[str, type[Any]]]:
    """Return the parameters of a command, also the shared ones, and its sets of options: dataclasses, by name."""
    found: list[inspect.Parameter] = []
    sets: dict[str, type[Any]] = {}
    _, *own = inspect.signature(act, eval_str=True).parameters.values()
    for each in own:
        if isinstance(each.annotation, type) and is_dataclass(each.annotation):
            sets[each.name] = each.annotation
            found += _declared(each.annotation)
        else:
            found.append(_parameter(each.name, each.annotation, each.default))
    for each in _declared(_SharedOptions):
        if each.name in shared:
            each.default.rich_help_panel = _PANEL
            found.append(each)
    for each in found:
        add_completion(each.default, (lambda given: Here(given).repository) if "repo" in shared else None)
    return found, sets


def _declared(options: Any) -> list[inspect.Parameter]:
    """Return a parameter for each option of a set."""
    # The declaration of a shared option is in Annotated, which is removed without `include_extras`.
    hints = get_type_hints(options, include_extras=True)
    return [_parameter(field.name, hints[field.name], field.default) for field in fields(options)]


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    """Return a parameter whose default is its declaration. That of a type such as `RefOption` is in the type."""
    if get_origin(kind) is Annotated:
        kind, declaration = get_args(kind)
        declaration = copy(declaration)
        declaration.default = ... if default is inspect.Parameter.empty else default
    else:
        declaration = copy(default)
    # Keyword-only, because a signature refuses a positional parameter without a default after one with a default.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declaration, annotation=kind)


def remembered(memory: Memory, sentence: str, *, commit_id: str, before: Memory | None) -> Answer:
    """Return the answer about a folder's new memory, with notes: what it replaced, and which variables override it."""
    document = {
        "repository": memory.repository,
        "branch": memory.branch,
        "head_commit_id": commit_id,
        "remembered_in": str(memory.file),
    }
    notes = []
    if before is not None and before.repository != memory.repository:
        back = shlex.join(["anabranch", "switch", before.branch, "--repo", before.repository])
        notes.append(f"note: this folder worked with {before.repository} before; return to it with: {back}")
    notes += [f"note: {name} is set to another value, and overrides it" for name in overriding_variables(memory)]
    return Answer(document, sentence, *notes)
