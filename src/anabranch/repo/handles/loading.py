"""What a handle does with files: load rows from them, and export rows to them."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError, MissingDependencyError
from anabranch.files.csv_options import CsvOptions
from anabranch.files.finding import find_files
from anabranch.files.formats import checked_format
from anabranch.files.rows import Reading
from anabranch.files.writing import Target
from anabranch.ids import TableKey
from anabranch.repo.engine import Loader
from anabranch.repo.handles.writing import WritingHandle
from anabranch.repo.io.export import Wanted, export_table
from anabranch.repo.io.frames import load_frame
from anabranch.repo.io.load import load_files
from anabranch.repo.io.local import write_rows
from anabranch.repo.io.values import (
    Choice,
    ExportReport,
    FrameRequest,
    LoadMode,
    LoadReport,
    LoadRequest,
    OnBad,
    OnDuplicate,
    OnProgress,
    checked_choice,
    checked_key,
    checked_schema,
)
from anabranch.repo.log.arguments import checked_limit, checked_text
from anabranch.repo.log.entries import CommitKind

__all__ = ["LoadingHandle"]

# From here on Spark is worth the seconds that it takes to start.
_SPARK_FROM_BYTES = 2 << 30


class LoadingHandle(WritingHandle):
    """Moves rows between tables and files."""

    def load(  # noqa: PLR0913 - one call for one load, whose every choice has a default
        self,
        key: str,
        source: Any,
        *,
        format: str | None = None,  # noqa: A002 - the name that users know
        mode: str = LoadMode.APPEND,
        branch: str | None = None,
        schema: pa.Schema | Mapping[str, Any] | None = None,
        primary_key: Sequence[str] | None = None,
        delimiter: str | None = None,
        quote: str | None = '"',
        escape: str | None = None,
        header: bool = True,
        columns: Sequence[str] | None = None,
        null: str | Sequence[str] = "",
        encoding: str = "utf-8",
        skip: int = 0,
        on_bad: str = OnBad.FAIL,
        on_duplicate: str = OnDuplicate.REFUSE,
        engine: str = Choice.AUTO,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        on_progress: OnProgress = lambda _progress: None,
    ) -> LoadReport:
        """Load rows into a table as one commit; the table is made if it is not there.

        The source is a file, a folder or a pattern, local or in an object store, a list of these, a Spark DataFrame, or
        anything Arrow can read. Types are the table's, else those of the schema (which may be a dict of some columns'
        types), else they are found by looking at every value. Files without a header have the columns of the table in
        their order, unless `columns` names them. Whatever goes wrong, nothing changes.
        """
        text = f"Load {key}" if message is None else checked_text(message)
        name, how = str(TableKey.parse(key)), checked_choice(LoadMode, mode, "the mode")
        chosen = checked_choice(Choice, engine, "the engine")
        repeated = checked_choice(OnDuplicate, on_duplicate, "on_duplicate")
        whole, types = checked_schema(schema)
        wanted = None if format is None else checked_format(format)
        if not _are_paths(source):
            frame = FrameRequest(
                key=name,
                mode=how,
                schema=whole,
                types=types,
                primary_key=checked_key(primary_key),
                on_duplicate=repeated,
            )
            tx = self.transaction(branch, message=text, metadata=metadata, kind=CommitKind.LOAD)
            with tx:
                loaded, by = load_frame(tx, frame, source, find_loader=self._context.find_loader)
            return LoadReport.of(frame, loaded, branch=str(self._named(branch)), engine=by, commit=tx.published)
        files = find_files(_listed(source), format=wanted, storage_options=storage_options or self.storage_options)
        csv = CsvOptions(
            delimiter=delimiter or _delimiter_of(files[0].path),
            quote=quote,
            escape=escape,
            header=header,
            null=(null,) if isinstance(null, str) else tuple(null),
            encoding=encoding,
            skip=skip,
        )
        request = LoadRequest(
            key=name,
            files=files,
            reading=Reading(format=files[0].format, csv=csv, names=_names_of(whole, columns, csv)),
            mode=how,
            schema=whole,
            types=types,
            primary_key=checked_key(primary_key),
            on_bad=checked_choice(OnBad, on_bad, "on_bad"),
            on_duplicate=repeated,
        )
        loader = self._loader(chosen, sum(file.size for file in files))
        write = write_rows if loader is None else loader.write
        tx = self.transaction(branch, message=text, metadata=metadata, kind=CommitKind.LOAD)
        with tx:
            loaded = load_files(tx, request, lambda task: write(task, on_progress=on_progress))
        by = Choice.LOCAL if loader is None else Choice.SPARK
        return LoadReport.of(request, loaded, branch=str(self._named(branch)), engine=by, commit=tx.published)

    def export(  # noqa: PLR0913 - one call for one export, whose every choice has a default
        self,
        key: str,
        target: str | os.PathLike[str],
        *,
        format: str | None = None,  # noqa: A002 - the name that users know
        ref: str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - Arrow's and Lance's name
        limit: int | None = None,
        single_file: bool = False,
        overwrite: bool = False,
        delimiter: str | None = None,
        quote: str | None = '"',
        header: bool = True,
        null: str = "",
        storage_options: Mapping[str, str] | None = None,
        on_progress: OnProgress = lambda _progress: None,
    ) -> ExportReport:
        """Write rows of a table, as a ref has them, to a file or to the files of a folder.

        A target whose name tells a format is one file; any other is a folder of files of about a million rows each,
        unless `single_file` is asked for. A file appears under its name when it is whole.
        """
        snapshot = self.published_snapshot_of(self._ref(ref))
        where = Target.parse(
            target,
            format=None if format is None else checked_format(format),
            single_file=single_file,
            storage_options=storage_options or self.storage_options,
        )
        csv = CsvOptions(delimiter=delimiter or _delimiter_of(where.uri), quote=quote, header=header, null=(null,))
        wanted = Wanted(columns=columns, filter=filter, limit=checked_limit(limit, "rows"))
        return export_table(snapshot, key, where, wanted, overwrite=overwrite, csv=csv, on_progress=on_progress)

    def _loader(self, chosen: Choice, size: int) -> Loader | None:
        if chosen is Choice.LOCAL or (chosen is Choice.AUTO and size < _SPARK_FROM_BYTES):
            return None
        loader = self._context.find_loader()
        if loader is None and chosen is Choice.SPARK:
            raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
        return loader


def _are_paths(source: Any) -> bool:
    if isinstance(source, str | os.PathLike):
        return True
    return isinstance(source, list | tuple) and all(isinstance(item, str | os.PathLike) for item in source)


def _names_of(schema: pa.Schema | None, columns: Sequence[str] | None, csv: CsvOptions) -> tuple[str, ...] | None:
    """What the columns of files without a header are called, if it is said."""
    if columns is None:
        return None if schema is None else tuple(schema.names)
    if csv.header:
        raise InvalidInputError("columns are named for files that name them in a header", hint="leave one of them out")
    if isinstance(columns, str) or len(set(columns)) < len(columns):
        raise InvalidInputError(f"the columns are {columns!r}", hint="give a list of different names")
    return tuple(columns)


def _listed(source: Any) -> list[str | os.PathLike[str]]:
    listed = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not listed:
        raise InvalidInputError("there is no file to load", hint="name at least one")
    return listed


def _delimiter_of(path: str) -> str:
    """What a file's name says."""
    return "\t" if ".tsv" in path.lower() else ","
