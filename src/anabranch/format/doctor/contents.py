"""Check that the files which versions need are there and complete, in the dataset and in its bases."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch.errors import AnabranchError, DamagedFileError, ObjectNotFoundError
from anabranch.format.doctor.findings import FindingKind
from anabranch.format.doctor.inventory import VersionFacts
from anabranch.format.home import Home
from anabranch.format.layout.deletions import read_deletion_file
from anabranch.format.layout.files import FileKind, NeededFile
from anabranch.format.layout.listing import Layout, LayoutFile, LayoutKind
from anabranch.storage import in_parallel, open_store

__all__ = ["Contents", "FileProblem", "WrongFile", "check_contents"]

# The last bytes of every Lance file.
_MAGIC = b"LANC"


class FileProblem(StrEnum):
    """What may be wrong with a file."""

    MISSING = "missing"
    WRONG_SIZE = "wrong size"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongFile:
    """A file that is missing or damaged, the problem in words, and the versions that need the file."""

    file: NeededFile
    problem: FileProblem
    explanation: str
    versions: tuple[VersionFacts, ...]

    @property
    def kind(self) -> FindingKind:
        """The kind of finding that reports the file."""
        is_missing = self.problem is FileProblem.MISSING
        match self.file.kind:
            case FileKind.INDEX:
                return FindingKind.MISSING_INDEX if is_missing else FindingKind.DAMAGED_INDEX
            case FileKind.DELETION:
                return FindingKind.MISSING_DELETION_FILE if is_missing else FindingKind.DAMAGED_DELETION_FILE
            case FileKind.DATA:
                return FindingKind.MISSING_DATA_FILE if is_missing else FindingKind.WRONG_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The files with problems, and the folders in bases that could not be listed, each with the reason."""

    wrong: tuple[WrongFile, ...]
    unchecked: Mapping[str, str] = field(default_factory=dict)


def check_contents(root: Home, files: Layout, versions: Iterable[VersionFacts]) -> Contents:
    """Check the files of some versions. Deletion files are read; of others, the size and the last bytes are compared.

    A file that several versions need is checked once.
    """
    users: dict[str, list[VersionFacts]] = defaultdict(list)
    needed: dict[str, NeededFile] = {}
    for facts in versions:
        for file in _required(facts):
            needed[file.uri] = file
            users[file.uri].append(facts)
    in_bases, unchecked = _list_bases(root, (file for file in needed.values() if file.is_elsewhere))
    sizes = _sizes_below(files) | in_bases
    # The files in a folder that cannot be listed are neither there nor missing.
    checked = [file for file in needed.values() if _folder(file.path) not in unchecked]
    problems = {**_find_cut_off_indices(root, files, checked), **_find_damaged_deletions(root, checked)}
    wrong = []
    for file in sorted(checked, key=lambda file: file.path):
        found = _find_problem(file, sizes.get(file.path)) or problems.get(file.uri)
        if found is not None:
            problem, explanation = found
            wrong.append(
                WrongFile(file=file, problem=problem, explanation=explanation, versions=_sorted(users[file.uri]))
            )
    return Contents(wrong=tuple(wrong), unchecked=unchecked)


def _required(facts: VersionFacts) -> Iterator[NeededFile]:
    return (file for file in facts.files if file.mention.is_required)


def _sizes_below(files: Layout) -> dict[str, int]:
    """Return the sizes of the files below the root, by the paths that manifests use: an index is a folder."""
    sizes: Counter[str] = Counter()
    for file in files.files:
        sizes[file.named_path] += file.size
    return dict(sizes)


def _sorted(versions: list[VersionFacts]) -> tuple[VersionFacts, ...]:
    return tuple(sorted(versions, key=lambda facts: (facts.branch or "", facts.version)))


_Problem = tuple[FileProblem, str]


def _find_problem(file: NeededFile, size: int | None) -> _Problem | None:
    """Compare the size of a file with that in the manifest, None for a file that is not there."""
    # Old manifests record no size. Then only the existence of a file can be checked.
    expected = file.mention.size
    if size is None:
        return FileProblem.MISSING, "it is missing"
    if expected is not None and size != expected:
        return FileProblem.WRONG_SIZE, f"it has {size} bytes, and manifests record {expected}"
    return None


def _list_bases(root: Home, files: Iterable[NeededFile]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the sizes of the files in bases that are there, and the folders that cannot be listed, with the reason."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for file in files:
        wanted[_folder(file.path)].add(file.mention.name)
    sizes: Counter[str] = Counter()
    unchecked: dict[str, str] = {}
    for folder, names in wanted.items():
        try:
            for info in open_store(folder, root.storage_options).list():
                # An index is a folder, and its size is that of all of its files.
                name = info.path.partition("/")[0]
                if name in names:
                    sizes[f"{folder}/{name}"] += info.size
        # An unreachable base is reported once, not as many missing files.
        except AnabranchError as err:
            unchecked[folder] = err.problem
    return dict(sizes), unchecked


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _find_cut_off_indices(root: Home, files: Layout, needed: Iterable[NeededFile]) -> dict[str, _Problem]:
    """Find the indices with a file that does not end as a Lance file does, as after a power loss."""
    folders = {file.path: file.uri for file in needed if file.kind is FileKind.INDEX}

    def is_checked(file: LayoutFile) -> bool:
        is_whole = file.name.endswith(".lance") and file.size >= len(_MAGIC)
        return is_whole and file.kind is LayoutKind.INDEX and file.named_path in folders

    checked = list(filter(is_checked, files.files))
    store = root.store()
    # Only the last bytes are read: a file that a power loss cut off, or filled with zeros, has no mark there.
    ends = in_parallel(lambda file: store.get_range(file.path, file.size - len(_MAGIC), len(_MAGIC)), checked)
    return {
        folders[file.named_path]: (FileProblem.DAMAGED, f"{file.path!r} does not end as a Lance file does")
        for file, end in zip(checked, ends, strict=True)
        if end != _MAGIC
    }


def _find_damaged_deletions(root: Home, files: Iterable[NeededFile]) -> dict[str, _Problem]:
    """Read deletion files. Manifests record no size of them, only the number of rows they delete."""
    deletions = [file for file in files if file.mention.deleted_rows is not None]

    def check(file: NeededFile) -> str | None:
        folder, _, name = file.uri.rpartition("/")
        try:
            found = len(read_deletion_file(open_store(folder, root.storage_options).get(name), name=name))
        except DamagedFileError as err:
            return err.problem
        except ObjectNotFoundError:
            return None  # a missing file is another problem
        expected = file.mention.deleted_rows
        return None if found == expected else f"it deletes {found} rows, and the manifest records {expected}"

    found = zip(deletions, in_parallel(check, deletions), strict=True)
    return {file.uri: (FileProblem.DAMAGED, problem) for file, problem in found if problem is not None}
