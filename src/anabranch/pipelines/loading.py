"""A pipeline file, executed; what goes wrong in it names its line."""

import hashlib
import linecache
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from anabranch.errors import InvalidPipelineError, ObjectNotFoundError
from anabranch.pipelines.declarations import SourceLocation
from anabranch.storage import open_files

__all__ = ["MODULE", "PROJECT_FILE", "Source", "execute", "executed_source", "read_source"]

# How the names of the modules begin that pipeline files are executed as.
MODULE = "anabranch_pipeline_"
# What makes a folder a project.
PROJECT_FILE = "anabranch.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of a pipeline file, and the path it is known by; of a project, all its files as one JSON document."""

    file: str
    content: bytes

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    @property
    def is_project(self) -> bool:
        return self.name == PROJECT_FILE

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def read_source(path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Source:
    """Read a pipeline file, local or in an object store."""
    file = os.fspath(path)
    folder, _, name = file.rpartition("/")
    try:
        content = open_files(folder or ("/" if file.startswith("/") else "."), storage_options).get(name)
    except ObjectNotFoundError:
        raise ObjectNotFoundError(f"there is no file {file!r}", hint="name the file of a pipeline") from None
    return Source(file=file, content=content)


def executed_source(file: str) -> Source:
    """What Python knows of the text of a file, or of a cell of a notebook, that it has executed."""
    return Source(file=file, content="".join(linecache.getlines(file)).encode())


def execute(source: Source) -> ModuleType:
    """Execute a file as a module of its own."""
    module = ModuleType(f"{MODULE}{source.hash[:16]}")
    module.__file__ = source.file
    # Where classes look for the names in their annotations, and tracebacks for lines.
    sys.modules[module.__name__] = module
    try:
        text = source.content.decode()
        linecache.cache[source.file] = (len(text), None, text.splitlines(keepends=True), source.file)
        exec(compile(text, source.file, "exec"), vars(module))  # noqa: S102 - the user's own file
    except UnicodeDecodeError:
        raise InvalidPipelineError(f"{source.file} is not UTF-8", hint="save it as UTF-8") from None
    except InvalidPipelineError:
        raise
    except SyntaxError as err:
        SourceLocation(file=err.filename or source.file, line=err.lineno or 1).fail(err.msg, hint="correct the Python")
    except Exception as err:
        lines = [frame.lineno for frame in traceback.extract_tb(err.__traceback__) if frame.filename == source.file]
        problem = f"{SourceLocation(file=source.file, line=(lines or [1])[-1] or 1)}: {type(err).__name__}: {err}"
        raise InvalidPipelineError(problem, hint="a pipeline file declares outputs, and does nothing else") from err
    return module
