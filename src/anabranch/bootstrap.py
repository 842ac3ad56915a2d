"""Open and create repositories, and connect them to their engines."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from anabranch.ids import MAIN
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.creation import MARK, check_repository, create_repository
from anabranch.repo.log.numbered_log import BRANCHES
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.repository import Engines, Repository, SqlEngine
from anabranch.storage import open_store
from anabranch.storage.options import DURABILITY, checked_options, clock_tolerance_of
from anabranch.storage.requests import OnProgress, counting
from anabranch.storage.uris import normalise_uri

if TYPE_CHECKING:
    from anabranch.format.doctor.findings_and_repairs import DoctorReport
    from anabranch.repo.history.comparer import LargeComparer, RowComparer
    from anabranch.repo.io.clone import Relocation
    from anabranch.repo.io.prepared_table import Loader
    from anabranch.repo.write.table_changes import Rewriter


def init_repository(
    uri: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    actor: str | None = None,
    durability: str | None = None,
) -> Repository:
    """Make a repository at a folder or URI and open it.

    `durability` is as for `open`.

    >>> repo = ab.init("lake", actor="ada")
    >>> repo.branch, [commit.message for commit in repo.list_commits()]
    ('main', ['Begin the repository'])
    """
    config = _config(uri, _with_durability(storage_options, durability), actor)
    repository = Repository(config, engines=ENGINES)  # refuses a bad actor before anything is made
    create_repository(config)
    return repository


def open_repository(
    uri: str | os.PathLike[str],
    *,
    branch: str = "main",
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: str | None = None,
) -> Repository:
    """Open the repository at a folder or URI, bound to a branch. Raise BranchNotFoundError if it does not exist.

    On a local disk, commits wait until the disk has them (`durability="full"`, the default), so that they survive a
    power loss. `durability="none"` does not wait: use it for tests and throw-away lakes. The storage option
    `durability` means the same.

    >>> ab.open("shop", branch="main", actor="ada").tables()
    ['shop.orders']
    """
    repository = bind_repository(
        uri, branch=branch, actor=actor, storage_options=_with_durability(storage_options, durability)
    )
    if branch != MAIN:  # which every repository has, so that there is nothing to check
        repository.branch_get(branch)
    return repository


def bind_repository(
    uri: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Repository:
    """Open a repository whose branch may not exist, for callers that restore it or explain where it was named."""
    return Repository(_existing(uri, storage_options, actor), engines=ENGINES, branch=branch)


def open_damaged_repository(
    uri: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None, actor: str | None = None
) -> Repository:
    """Return a handle for doctor, without checking that the location holds a repository."""
    return Repository(_config(uri, storage_options, actor), engines=ENGINES)


def doctor(
    uri: str | os.PathLike[str], *, repair: bool = False, storage_options: Mapping[str, str] | None = None
) -> "DoctorReport":
    """Report what is wrong with a repository or with one Lance dataset, also one that cannot be opened.

    With `repair`, fix what is safe to fix. `ab.open(uri).doctor()` and `ab.dataset(uri).doctor()` have more options.

    >>> ab.doctor("shop").is_clean, ab.doctor("shop/tables/shop/orders.lance").is_clean
    (True, True)
    """
    from anabranch.format.dataset import open_damaged_dataset

    root = normalise_uri(uri)
    if _is_repository(root, dict(storage_options or {})):
        return open_damaged_repository(root, storage_options=storage_options).doctor(repair=repair)
    return open_damaged_dataset(root, storage_options).doctor(repair=repair)


def _is_repository(root: str, options: Mapping[str, str]) -> bool:
    """Return whether a location holds a repository. If its marker file is lost, the folders of its logs count."""
    store = open_store(root, options)
    # Both have a folder `_versions`. That of a repository holds folders, the logs of its branches; that of a Lance
    # dataset holds files, its manifests.
    return store.find_info(MARK) is not None or bool(store.list_folders(BRANCHES) and not store.list_files(BRANCHES))


def clone_repository(  # noqa: PLR0913 - one call for one clone, whose every choice has a default
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    ref: str = MAIN,
    tables: Sequence[str] | None = None,
    shallow: bool = True,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
    actor: str | None = None,
    progress: OnProgress | None = None,
) -> Repository:
    """Make a repository at an empty location whose main begins with the tables of a ref of another, and open it.

    A shallow clone reads the source's files where they are and writes its own; the source keeps what it needs until
    `clone_release`. Otherwise every file is copied and compared. `progress` counts tables, or
    files if they are copied. Options for the target are by default those for the source.

    >>> experiment = ab.clone("shop", "experiment", actor="ada")
    >>> len(experiment["shop.orders"])
    3
    """
    from anabranch.repo.io import clone
    from anabranch.repo.log.clones import CloneKind

    config = _config(target, storage_options if target_storage_options is None else target_storage_options, actor)
    repository = Repository(config, engines=ENGINES)  # refuses a bad actor before anything is made
    clone.clone_repository(
        RepoStore.of(_existing(source, storage_options, actor)),
        config,
        ref=ref,
        tables=tables,
        kind=CloneKind.SHALLOW if shallow else CloneKind.DEEP,
        progress=counting(progress, "tables" if shallow else "files"),
    )
    return repository


def relocate_repository(
    uri: str | os.PathLike[str],
    *,
    mapping: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: OnProgress | None = None,
) -> "Relocation":
    """Make a repository that was moved or copied read its new location only.

    `mapping` (old prefix to new) is for other locations that moved: tiers, or the source of a shallow clone. It may be
    cut off and done again. `progress` counts tables.
    """
    from anabranch.repo.io.clone import relocate_repository

    config = _config(uri, storage_options, None)
    return relocate_repository(config, mapping=mapping, progress=counting(progress, "tables"))


def _with_durability(storage_options: Mapping[str, str] | None, durability: str | None) -> Mapping[str, str]:
    options = checked_options(storage_options)
    return options if durability is None else {**options, DURABILITY: durability}


def _existing(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None, actor: str | None) -> RepoConfig:
    config = _config(uri, storage_options, actor)
    return replace(config, made_at=check_repository(config).root, read_root=lambda: check_repository(config).root)


def _config(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None, actor: str | None) -> RepoConfig:
    root = normalise_uri(uri)
    options = checked_options(storage_options)
    return RepoConfig(
        root=root,
        store=open_store(root, options),
        storage_options=options,
        clock_tolerance=clock_tolerance_of(options),
        actor=actor,
        restore=_restore,
    )


def _restore(root: str, storage_options: Mapping[str, str], actor: str | None, made_at: str | None) -> RepoConfig:
    """Open the settings of a pickled repository. Nothing is requested before it is used."""
    config = _config(root, storage_options, actor)
    return replace(config, made_at=made_at, read_root=lambda: check_repository(config).root)


def _load_engine() -> SqlEngine:
    # DuckDB takes a while to load, and few calls need it.
    from anabranch.duck.engine import default_engine

    return default_engine()


def _load_comparer() -> "RowComparer":
    from anabranch.repo.history.memory_comparer import LocalComparer

    # As a function: a few rows are compared without DuckDB, which takes a while to load.
    return LocalComparer(load_engine=_load_duck_comparer)


def _load_duck_comparer() -> "RowComparer":
    from anabranch.duck.comparer import default_comparer

    return default_comparer()


def _find_large_comparer() -> "LargeComparer | None":
    if find_spec("pyspark") is None:
        return None
    from anabranch.duck.comparer import single_comparer
    from anabranch.spark.comparer import SparkComparer

    return SparkComparer(single_comparer)


def _load_rewriter() -> "Rewriter":
    # Spark is loaded and started only if a call asks for it.
    from anabranch.spark.tasks import SparkRewriter

    return SparkRewriter()


def _find_loader() -> "Loader | None":
    if find_spec("pyspark") is None:
        return None
    from anabranch.spark.tasks import SparkLoader

    return SparkLoader()


ENGINES = Engines(
    load_sql=_load_engine,
    load_comparer=_load_comparer,
    find_large_comparer=_find_large_comparer,
    load_rewriter=_load_rewriter,
    find_loader=_find_loader,
)
