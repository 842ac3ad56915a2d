"""What a command works with: from its options, else the environment, else what the folder remembers.

A folder remembers its repository and branch in a small file, found from any folder below it. The folder of a repository
needs no such file. `anabranch config` writes further settings to a file beside it, or to a file of the user. No file
holds credentials: those are storage options, which are given with each command or in the environment.
"""

import getpass
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from anabranch.errors import (
    DamagedFileError,
    InvalidInputError,
    NotFoundError,
    RepositoryNotFoundError,
    StorageError,
    UnsupportedFormatError,
)
from anabranch.ids import MAIN

REPOSITORY_VARIABLE = "ANABRANCH_REPO"
BRANCH_VARIABLE = "ANABRANCH_BRANCH"
ACTOR_VARIABLE = "ANABRANCH_ACTOR"
MEMORY_FILE = ".anabranch.json"
CONFIG_FILE = ".anabranch.config.json"
_REPOSITORY_FILE = "_repo.json"  # in the folder of each repository
_STORAGE = "storage."

# A file with a larger number is refused: this version would ignore the fields that it does not know.
_FORMAT = 1


class Source(StrEnum):
    """Where a setting comes from, the strongest first."""

    OPTION = "option"
    ENVIRONMENT = "environment"
    FOLDER = "folder"
    USER = "user"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The repository and branch that a folder remembers; the repository is an absolute path or a URI."""

    file: Path
    repository: str
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Which repository and branch a command works with, and for whom."""

    repository: str
    repository_source: Source
    branch: str
    branch_source: Source
    actor: str | None
    memory: Memory | None


def load_settings(
    *,
    repository: str | None = None,
    branch: str | None = None,
    actor: str | None = None,
    environment: Mapping[str, str] = os.environ,
    folder: Path | None = None,
) -> Settings:
    """Choose each setting from the strongest source that has it; empty variables count as not set."""
    here = folder or _current_folder()
    memory = find_memory(here)
    config = load_config(environment=environment, folder=here)
    # `write_config` sets it for the user only: the repository of a folder is in its memory file.
    of_user = config.get("repository")
    location, location_source = _first(
        (repository, Source.OPTION),
        (environment.get(REPOSITORY_VARIABLE), Source.ENVIRONMENT),
        (None if memory is None else memory.repository, Source.FOLDER),
        (None if of_user is None else of_user.value, Source.USER),
    )
    if location is None:
        raise RepositoryNotFoundError(
            f"the folder {str(here)!r} has no repository, and none is named",
            hint="use an existing one with 'anabranch switch main --repo PATH' (or name it with --repo or"
            f" {REPOSITORY_VARIABLE}); create one with 'anabranch init PATH' or 'anabranch demo'",
        )
    location = _normalise(location)
    # A branch is remembered together with its repository, and means nothing in another.
    remembered = memory.branch if memory is not None and memory.repository == location else None
    name, name_source = _first(
        (branch, Source.OPTION),
        (environment.get(BRANCH_VARIABLE), Source.ENVIRONMENT),
        (remembered, Source.FOLDER),
        (MAIN, Source.DEFAULT),
    )
    return Settings(
        repository=location,
        repository_source=location_source,
        branch=MAIN if name is None else name,
        branch_source=name_source,
        actor=_actor(actor, environment, config),
        memory=memory,
    )


def new_repository_settings(
    path: str | None, *, actor: str | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Return the settings for a new repository: by default as the environment gives, else the current folder."""
    here = _current_folder()
    # The memory of the folder is not a source: it names a repository that already exists.
    location, source = _first(
        (path, Source.OPTION), (environment.get(REPOSITORY_VARIABLE), Source.ENVIRONMENT), (".", Source.DEFAULT)
    )
    return Settings(
        repository=_normalise("." if location is None else location),
        repository_source=source,
        branch=MAIN,
        branch_source=Source.DEFAULT,
        actor=_actor(actor, environment, load_config(environment=environment, folder=here)),
        memory=find_memory(here),
    )


def find_memory(folder: Path) -> Memory | None:
    """Return what the folder remembers, or the nearest one above it. The folder of a repository remembers itself."""
    around = None
    for location in (folder, *folder.parents):
        file = location / MEMORY_FILE
        try:
            fields = _read(file)
        except ValueError as err:
            raise _damaged(file) from err
        if fields is not None:
            memory = _decode(file, fields)
            # A folder above may remember a branch of the same repository, by a path with links.
            is_same = around is None or os.path.realpath(memory.repository) == os.path.realpath(around.repository)
            return memory if is_same else around
        if around is None and (location / _REPOSITORY_FILE).is_file():
            around = Memory(file=file, repository=_normalise(str(location)), branch=MAIN)
    return around


def _read(file: Path) -> dict[str, Any] | None:
    """Return the JSON object of a file, or None if there is no file. Raise ValueError if it is not a JSON object."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        raise StorageError(f"{str(file)!r} cannot be read: {err.strerror}", hint="check its permissions") from err
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def remember(*, repository: str, branch: str, memory: Memory | None = None, folder: Path | None = None) -> Memory:
    """Let the folder remember a repository and a branch.

    A memory of the same repository that a folder above holds is changed there, so that there is one.
    """
    file = memory.file if memory and memory.repository == repository else (folder or _current_folder()) / MEMORY_FILE
    location = repository
    if "://" not in repository and Path(repository).is_relative_to(file.parent):
        # Relative, so that the folder and a repository below it may move together.
        location = Path(repository).relative_to(file.parent).as_posix()
    fields = {"format": _FORMAT, "repository": location, "branch": branch}
    _write(file, fields, hint=f"work in another folder, or use --repo or {REPOSITORY_VARIABLE}")
    return Memory(file=file, repository=repository, branch=branch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """A setting of `anabranch config`, and the file that it comes from."""

    value: str
    source: Source
    file: Path


def load_config(*, environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> dict[str, ConfigValue]:
    """Return all settings by name. The settings of the folder override those of the user."""
    found: dict[str, ConfigValue] = {}
    # The folder is last, because its values replace those of the user.
    for source in (Source.USER, Source.FOLDER):
        file = _config_file(source, environment, folder or _current_folder())
        for name, value in _read_config(file).items():
            found[name] = ConfigValue(value=value, source=source, file=file)
    return dict(sorted(found.items()))


def configured_options() -> dict[str, str]:
    return {name.removeprefix(_STORAGE): one.value for name, one in load_config().items() if name.startswith(_STORAGE)}


def write_config(name: str, value: str | None, *, source: Source) -> Path:
    """Set a setting of the folder or of the user, or remove it with None. Return the file."""
    _check_setting(name, source)
    file = _config_file(source, os.environ, _current_folder())
    settings = _read_config(file)
    if value is None:
        if name not in settings:
            raise NotFoundError(
                f"{name!r} is not set in {str(file)!r}", hint="list the settings with 'anabranch config'"
            )
        del settings[name]
    else:
        settings[name] = value
    # There is no lock: of two commands at the same time, the last one wins.
    _write(file, dict(sorted(settings.items())), hint="check its permissions")
    return file


def _write(file: Path, fields: Mapping[str, Any], *, hint: str) -> None:
    # Written beside the file and renamed, so that a crash or a concurrent command never leaves or reads half a file.
    # The process id keeps the drafts of two commands apart.
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
        draft.replace(file)
    except OSError as err:
        draft.unlink(missing_ok=True)
        raise StorageError(f"{str(file)!r} cannot be written: {err.strerror}", hint=hint) from err


def _check_setting(name: str, source: Source) -> None:
    # By words, because each object store has its own names for credentials. A wrong match only means that the option
    # has to be passed in the variable.
    secrets = ("secret", "token", "password", "key", "credential")
    if name.startswith(_STORAGE) and len(name) > len(_STORAGE):
        if any(word in name.lower() for word in secrets):
            raise InvalidInputError(
                f"{name!r} may be a secret, and settings are stored as plain text",
                hint="pass it in the variable ANABRANCH_STORAGE_OPTIONS",
            )
    elif name == "repository" and source is Source.FOLDER:
        raise InvalidInputError(
            "the repository of a folder is set by 'anabranch switch'",
            hint="run 'anabranch switch main --repo URI', or set a default with --user",
        )
    elif name not in ("actor", "repository"):
        raise InvalidInputError(f"there is no setting {name!r}", hint="use actor, repository or storage.OPTION")


def _config_file(source: Source, environment: Mapping[str, str], folder: Path) -> Path:
    """Return the file of the user, or that of the nearest folder that has one, else of this folder."""
    if source is Source.USER:
        home = environment.get("XDG_CONFIG_HOME")
        return (Path(home) if home else Path.home() / ".config") / "anabranch" / "config.json"
    near = (location / CONFIG_FILE for location in (folder, *folder.parents))
    return next((file for file in near if file.is_file()), folder / CONFIG_FILE)


def _read_config(file: Path) -> dict[str, str]:
    try:
        found = _read(file) or {}
    except ValueError as err:
        raise DamagedFileError(f"{str(file)!r} is not JSON, or not an object", hint="correct or delete it") from err
    if not all(isinstance(value, str) for value in found.values()):
        raise DamagedFileError(f"{str(file)!r} is not an object of texts", hint="correct or delete it")
    return found


def overriding_variables(memory: Memory, *, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the variables that override what the folder remembers."""
    # The repository is normalised before it is compared: a relative path may name the same one.
    location, branch = environment.get(REPOSITORY_VARIABLE), environment.get(BRANCH_VARIABLE)
    found = [REPOSITORY_VARIABLE] if location and _normalise(location) != memory.repository else []
    return found + ([BRANCH_VARIABLE] if branch and branch != memory.branch else [])


def _first(*choices: tuple[str | None, Source]) -> tuple[str | None, Source]:
    """Return the first value. An empty option counts, and is refused later; an empty variable does not count."""
    given = ((value, source) for value, source in choices if value or (value == "" and source is Source.OPTION))
    return next(given, (None, Source.DEFAULT))


def _actor(given: str | None, environment: Mapping[str, str], config: "Mapping[str, ConfigValue]") -> str | None:
    name = given or environment.get(ACTOR_VARIABLE) or (config["actor"].value if "actor" in config else None)
    if name:
        return name
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return None  # a container's user may have no name


def _decode(file: Path, fields: Mapping[str, Any]) -> Memory:
    if not isinstance(fields.get("format"), int):
        raise _damaged(file)
    if fields["format"] > _FORMAT:
        raise UnsupportedFormatError(
            f"{str(file)!r} has the format {fields['format']}, and this version knows up to {_FORMAT}",
            hint="use a newer version of anabranch",
        )
    repository, branch = fields.get("repository"), fields.get("branch")
    if not (isinstance(repository, str) and repository and isinstance(branch, str) and branch):
        raise _damaged(file)
    # Relative to the file, not to the current folder: a command may run in any folder below it.
    location = repository if "://" in repository else str(file.parent / repository)
    return Memory(file=file, repository=_normalise(location), branch=branch)


def _normalise(location: str) -> str:
    from anabranch.storage.uris import normalise_uri  # loads the object store, for which a help text does not wait

    return normalise_uri(location)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as err:
        raise StorageError("the current folder is gone", hint="change to another one") from err


def _damaged(file: Path) -> DamagedFileError:
    return DamagedFileError(
        f"{str(file)!r} is damaged", hint="delete it, then run 'anabranch switch BRANCH --repo REPOSITORY'"
    )
