"""A project: a folder with `anabranch.yml`, a file for each model in `models/`, and checks in `checks/`."""

import json
import linecache
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from anabranch.errors import InvalidPipelineError, ObjectNotFoundError
from anabranch.pipelines.checks import declare_check
from anabranch.pipelines.declarations import (
    Engine,
    Output,
    Setting,
    SourceLocation,
    WriteMode,
    declare_parameters,
    parse_engine,
    parse_key,
    read_settings,
)
from anabranch.pipelines.definition import (
    PROJECT_FILE,
    PipelineDefinition,
    Source,
    execute,
    function_output,
    read_source,
    sql_output,
)
from anabranch.storage import ObjectInfo, open_files

_Kind = TypeVar("_Kind", bound=PipelineDefinition)

_FORMAT = 1
_MODELS = "models"
_CHECKS = "checks"
_FUNCTION = "model"
_COMMENTS = {".sql": "--", ".py": "#"}
_YAML = (".yml", ".yaml")
# The files of a project become one document in memory, which is also kept in the repository for each version.
_MOST_FILES = 5_000
_LONGEST_FILE = 1_000_000
_KINDS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "date": date}
_MODEL_SETTINGS = ("table", "key", "write", "materialized", "incremental", "inputs", "engine", "description", "checks")
# Names that dbt uses, and what to use here.
_MODEL_HINTS = {
    "primary_key": "use 'key'",
    "unique_key": "use 'key'",
    "tests": "use 'checks'",
    "data_tests": "use 'checks'",
    "columns": "list the checks of all columns under 'checks'",
    "config": "write the settings without 'config'",
    "alias": "use 'table'",
    "schema": "use 'table: bucket.name'",
}


def read_pipeline_source(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Source:
    """Read a pipeline file, or all files of a project folder; local or in an object store."""
    file = os.fspath(path)
    folder, _, name = file.rpartition("/")
    if name == PROJECT_FILE:
        return _read_folder(folder or ".", storage_options)
    # In an object store, only a request shows whether a path is a file, so there the name of a file ends with .py.
    if name.endswith(".py") or Path(file).is_file():
        return read_source(path, storage_options)
    return _read_folder(file.rstrip("/") or "/", storage_options)


def _read_folder(folder: str, storage_options: Mapping[str, str] | None) -> Source:
    store = open_files(folder, storage_options)
    try:
        content = {PROJECT_FILE: store.get(PROJECT_FILE)}
    except ObjectNotFoundError:
        raise ObjectNotFoundError(
            f"there is neither a file {folder!r} nor a project: {folder}/{PROJECT_FILE} does not exist",
            hint="name the file of a pipeline, or the folder of a project",
        ) from None
    found = [info for part in (_MODELS, _CHECKS) for info in store.list(part) if _belongs(info)]
    if len(found) > _MOST_FILES:
        raise InvalidPipelineError(f"{folder} has {len(found):,} files", hint=f"use at most {_MOST_FILES:,}")
    content |= {info.path: store.get(info.path) for info in found}
    texts = {path: _decoded(f"{folder}/{path}", data) for path, data in sorted(content.items())}
    # Sorted by path above, so that equal files have the same hash.
    bundle = json.dumps({"format": _FORMAT, "files": texts}, ensure_ascii=False, indent=0)
    return Source(file=f"{folder}/{PROJECT_FILE}", content=bundle.encode())


def _belongs(info: ObjectInfo) -> bool:
    path = PurePosixPath(info.path)
    # Skip files of editors and Python, such as `__pycache__`.
    hidden = any(part.startswith((".", "__")) for part in path.parts)
    return not hidden and path.suffix in (*_COMMENTS, *_YAML)


def _decoded(file: str, data: bytes) -> str:
    if len(data) > _LONGEST_FILE:
        raise InvalidPipelineError(f"{file} has {len(data):,} bytes", hint=f"use at most {_LONGEST_FILE:,}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidPipelineError(f"{file} is not UTF-8", hint="save it as UTF-8") from None


def declare_project(kind: type[_Kind], source: Source) -> _Kind:
    """Make the pipeline that the files of a project declare."""
    folder = source.file.removesuffix(PROJECT_FILE)
    files = {PurePosixPath(path): text for path, text in json.loads(source.content)["files"].items()}
    for path, text in files.items():
        # Where errors look up the lines of a file.
        linecache.cache[f"{folder}{path}"] = (len(text), None, text.splitlines(keepends=True), f"{folder}{path}")
    pipeline, bucket = _read_head(kind, files[PurePosixPath(PROJECT_FILE)], f"{folder}{PROJECT_FILE}")
    for model in _iter_models(files, folder):
        _declare_model(pipeline, bucket, model)
    for path, text in files.items():
        if path.parts[0] == _CHECKS and path.suffix == ".sql":
            pipeline._add_check(declare_check(path.stem, text, SourceLocation(file=f"{folder}{path}", line=1)))
    return pipeline


def _read_head(kind: type[_Kind], text: str, file: str) -> tuple[_Kind, str | None]:
    """Read `anabranch.yml`. Return the pipeline without its outputs, and the usual bucket of its models."""
    settings = read_settings(text, file=file)
    found = settings.known("the project", ("name", "engine", "bucket", "parameters"))
    if "name" not in found:
        settings.fail("the project has no name", hint="add a line such as 'name: shop'")
    engine = found.get("engine")
    parameters = found["parameters"].entries("the list of parameters") if "parameters" in found else {}
    values = {name: _parameter(name, given) for name, given in parameters.items()}
    for name, given in parameters.items():
        # Declare each parameter alone, only for the line in its error. The pipeline does not have that line.
        declare_parameters({name: values[name]}, given.location)
    pipeline = kind(
        found["name"].text("the name of the project"),
        parameters=values,
        engine=Engine.SPARK if engine is None else parse_engine(engine.value, engine.location),
    )
    pipeline.location = SourceLocation(file=file, line=1)
    return pipeline, found["bucket"].text("the bucket") if "bucket" in found else None


def _parameter(name: str, given: Setting) -> Any:
    """Read a default value, or `{type: date}` for a parameter that must be given."""
    if not isinstance(given.value, dict):
        return given.plain()
    settings = given.known(f"the parameter {name!r}", ("type",))
    kind = settings["type"].value if "type" in settings else None
    if kind not in _KINDS:
        given.fail(f"the type of the parameter {name!r} is {kind!r}", hint=f"use {', '.join(_KINDS)}")
    return _KINDS[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """A file of a model, with the settings in its header or beside it."""

    path: PurePosixPath
    text: str
    header_lines: int
    location: SourceLocation
    settings: Mapping[str, Setting]

    @property
    def code(self) -> str:
        """The text without its header, whose checks and description do not determine the rows."""
        return "".join(self.text.splitlines(keepends=True)[self.header_lines :])

    def names_of(self, name: str) -> tuple[str, ...]:
        given = self.settings.get(name)
        return () if given is None or given.value in (None, ()) else given.names(f"the setting {name!r}")


def _iter_models(files: Mapping[PurePosixPath, str], folder: str) -> Iterator[_Model]:
    beside = {path.with_suffix(""): path for path in files if path.parts[0] == _MODELS and path.suffix in _YAML}
    for path, text in files.items():
        if path.parts[0] != _MODELS or path.suffix not in _COMMENTS:
            continue
        file = f"{folder}{path}"
        settings, length = _header(text, comment=_COMMENTS[path.suffix], file=file)
        other = beside.pop(path.with_suffix(""), None)
        if other is not None:
            more = _known(read_settings(files[other], file=f"{folder}{other}"))
            _check_disjoint(settings, more, file=file)
            settings = settings | more
        location = SourceLocation(file=file, line=1)
        yield _Model(path=path, text=text, header_lines=length, location=location, settings=settings)
    # Without a model the settings would have no effect. Most likely a name is misspelled.
    for path in beside.values():
        raise InvalidPipelineError(
            f"{folder}{path}:1: there is no model beside the file",
            hint=f"name it like its model: {path.stem}.sql or {path.stem}.py",
        )


def _check_disjoint(header: Mapping[str, Setting], beside: Mapping[str, Setting], *, file: str) -> None:
    # Refuse a setting in both, because it would not be clear which one has precedence.
    for name in beside.keys() & header.keys():
        beside[name].fail(f"{name!r} is also in the header of {file}", hint="keep one of them")


def _header(text: str, *, comment: str, file: str) -> tuple[dict[str, Setting], int]:
    """Read the YAML between two lines `-- ---` (SQL) or `# ---` (Python) at the top of a file, and count its lines."""
    # The header is made of comments, so that the file stays valid SQL or Python.
    lines, fence = text.splitlines(), f"{comment} ---"
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not lines or lines[first].rstrip() != fence:
        return {}, 0
    inside: list[str] = []
    for number, line in enumerate(lines[first + 1 :], start=first + 2):
        if line.rstrip() == fence:
            return _known(read_settings("\n".join(inside), file=file, first_line=first + 2)), number
        if not line.startswith(comment):
            SourceLocation(file=file, line=number).fail(f"the header is not closed by {fence!r}", hint="add this line")
        inside.append(line.removeprefix(comment).removeprefix(" "))
    return SourceLocation(file=file, line=first + 1).fail(
        f"the header is not closed by {fence!r}", hint="add this line"
    )


def _known(settings: Setting) -> dict[str, Setting]:
    return settings.known("a model", _MODEL_SETTINGS, hints=_MODEL_HINTS)


def _declare_model(pipeline: PipelineDefinition, usual_bucket: str | None, model: _Model) -> None:
    engine, description = model.settings.get("engine"), model.settings.get("description")
    declared = Output(
        key=_key(model, usual_bucket),
        location=model.location,
        inputs=(),
        engine=pipeline.engine if engine is None else parse_engine(engine.value, engine.location),
        write=_write_mode(model),
        primary_key=model.names_of("key"),
        incremental=model.names_of("incremental"),
        description="" if description is None else description.text("the setting 'description'"),
        code=model.code,
    )
    if model.path.suffix == ".sql":
        if "inputs" in model.settings:
            model.settings["inputs"].fail("a SQL model has 'inputs'", hint="leave it out; the SQL names them")
        output = sql_output(declared, model.text, pipeline.parameters)
    else:
        output = function_output(declared, _function(model), model.names_of("inputs"), pipeline.parameters)
    # The word of dbt does not name the input of which only new rows are read. With one input it is clear.
    materialized = model.settings.get("materialized")
    if materialized is not None and materialized.value == "incremental" and not output.incremental:
        if len(output.inputs) != 1:
            materialized.fail(
                f"'{output.key}' is incremental, and reads {len(output.inputs)} tables",
                hint="name those of which it reads the new rows only: 'incremental: [bucket.table]'",
            )
        output = replace(output, incremental=output.inputs)
    pipeline._add(output, model.settings.get("checks", Setting(value=(), location=model.location)))


def _key(model: _Model, usual_bucket: str | None) -> str:
    """Return the table of a model: from its settings, else by its file: `bucket.table.sql`, or `bucket/table.sql`."""
    if "table" in model.settings:
        given = model.settings["table"]
        return parse_key(given.text("the setting 'table'"), given.location)
    if "." in model.path.stem:
        return parse_key(model.path.stem, model.location)
    bucket = model.path.parent.name if len(model.path.parts) > 2 else usual_bucket
    if bucket is None:
        model.location.fail(
            f"the bucket of the model {model.path.stem!r} is not known",
            hint=f"move it to {_MODELS}/BUCKET/, or set 'bucket' in {PROJECT_FILE}, or 'table' in its header",
        )
    return parse_key(f"{bucket}.{model.path.stem}", model.location)


def _write_mode(model: _Model) -> WriteMode:
    """Read the write mode of the model: from `write`, or from the option of dbt."""
    write, given = model.settings.get("write"), model.settings.get("materialized")
    if write is not None:
        if given is not None:
            given.fail("the model has both 'write' and 'materialized'", hint="keep one of them")
        if write.value not in list(WriteMode):
            write.fail(f"a model cannot be written by {write.shown()}", hint=f"use {', '.join(WriteMode)}")
        return WriteMode(write.value)
    if given is None or given.value == "table":
        return WriteMode.REBUILD
    if given.value != "incremental":
        given.fail(f"a model cannot be materialized as {given.shown()}", hint="use 'table' or 'incremental'")
    # As in dbt: with a key, new rows replace those with the same key.
    return WriteMode.UPSERT if model.names_of("key") else WriteMode.APPEND


def _function(model: _Model) -> Any:
    function = getattr(execute(Source(file=model.location.file, content=model.text.encode())), _FUNCTION, None)
    if not callable(function):
        model.location.fail(f"the file defines no function {_FUNCTION!r}", hint=f"define one: def {_FUNCTION}(...)")
    return function
