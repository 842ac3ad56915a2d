"""Exports: the rows of a table as one file, to be fetched later."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anabranch.errors import FileMissingError
from anabranch.files.csv_options import CsvOptions
from anabranch.files.formats import FileFormat
from anabranch.files.writing import Target
from anabranch.format.staging.incoming import require_columns
from anabranch.ids import TableKey
from anabranch.repo.io.export import Selection, export_table
from anabranch.repo.io.values import ExportReport
from anabranch.server.branches import Branches, OpenBranch
from anabranch.server.files import Files
from anabranch.server.jobs.jobs import Jobs, Report, at_work, progress_callback
from anabranch.server.jobs.models import Job, JobKind, JobState
from anabranch.server.projects import Projects
from anabranch.server.reading import snapshot_at
from anabranch.server.tables import find_table

__all__ = ["ExportRequest", "Exports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Which rows are wanted, and how they are to be written."""

    format: FileFormat = FileFormat.CSV
    columns: tuple[str, ...] | None = None
    where: str | None = None
    limit: int | None = None
    gzip: bool = False
    csv: CsvOptions = field(default_factory=CsvOptions)
    ref: str | None = None


class Exports:
    """The file of an export is in a folder with the name of its job, and is kept as long as the job's row."""

    def __init__(self, projects: Projects, branches: Branches, files: Files, jobs: Jobs) -> None:
        self._projects = projects
        self._branches = branches
        self._files = files
        self._jobs = jobs

    def submit(self, branch: OpenBranch, key: TableKey, request: ExportRequest) -> Job:
        """Let the rows that a table has now, or had, be written."""
        self.forget_old()
        snapshot = snapshot_at(branch, request.ref)
        table = find_table(snapshot, key)
        if request.columns is not None:
            require_columns(table.schema, request.columns)
        name = _name_of(key, request)
        _target_of(Path("/") / name)  # refuses what cannot be written
        asked = asdict(request) | {"delimiter": request.csv.separator, "header": request.csv.header}
        del asked["csv"]
        said = {**asked, "bucket": key.bucket, "table": key.table}

        def work(job: Job, report: Report) -> Mapping[str, Any]:
            folder = self._files.folder_of(job.project_id, job.id)
            with at_work(job, self._projects, self._branches):
                folder.mkdir(parents=True)
                try:
                    written = export_table(
                        snapshot,
                        str(key),
                        _target_of(folder / name),
                        Selection(columns=request.columns, where=request.where, limit=request.limit),
                        overwrite=False,
                        csv=request.csv,
                        progress=progress_callback(report),
                    )
                    return _result_of(job, written, name)
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise

        return self._jobs.submit(branch, JobKind.EXPORT, said, work)

    def get_file(self, job: Job) -> Path:
        """The file that an export has made."""
        made = job.result if job.kind is JobKind.EXPORT and job.state is JobState.SUCCEEDED else None
        if made is None:
            raise FileMissingError(f"job '{job.id}', an {job.kind}, is {job.state} and has no file", hint="see the job")
        path = self._files.folder_of(job.project_id, job.id) / str(made["file_name"])
        if not path.is_file():
            raise FileMissingError(f"the file of job '{job.id}' is gone", hint="export again")
        return path

    def ids(self) -> set[str]:
        """The exports whose files are there to be fetched."""
        done = self._jobs.list_all(project_id=None, state=JobState.SUCCEEDED, limit=None)
        return {job.id for job in done if job.kind is JobKind.EXPORT}

    def forget_old(self) -> None:
        """Delete the files of exports that were made long ago, with their jobs."""
        for job in self._jobs.forget_old():
            shutil.rmtree(self._files.folder_of(job.project_id, job.id), ignore_errors=True)


def _name_of(key: TableKey, request: ExportRequest) -> str:
    return f"{key.table}.{request.format}{'.gz' if request.gzip else ''}"


def _target_of(path: Path) -> Target:
    return Target.parse(path, format=None, single_file=True, storage_options={})


def _result_of(job: Job, written: ExportReport, name: str) -> Mapping[str, Any]:
    return {
        "job_id": job.id,
        "rows": written.rows,
        "size_bytes": written.bytes_written,
        "format": written.format,
        "commit_id": written.commit_id,
        "file_name": name,
        "url": f"/jobs/{job.id}/file",
    }
