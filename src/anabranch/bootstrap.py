"""Open and make repositories: the place where the parts are put together."""

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec

from anabranch.repo.comparing import LargeComparer, RowComparer
from anabranch.repo.context import Context
from anabranch.repo.creation import check_repository, create_repository
from anabranch.repo.engine import Loader, Rewriter, SqlEngine
from anabranch.repo.repository import Repository
from anabranch.storage import open_store
from anabranch.storage.uris import normalise_uri

__all__ = ["init_repository", "open_repository"]


def init_repository(
    uri: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None, actor: str | None = None
) -> Repository:
    """Make a repository at a folder or URI and open it."""
    context = _context(uri, storage_options, actor)
    repository = Repository(context)  # refuses a bad actor before anything is made
    create_repository(context)
    return repository


def open_repository(
    uri: str | os.PathLike[str],
    *,
    branch: str = "main",
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Repository:
    """Open the repository at a folder or URI, bound to a branch."""
    context = _context(uri, storage_options, actor)
    has_moved = check_repository(context) != context.root
    return Repository(replace(context, has_moved=has_moved), branch=branch)


def _context(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None, actor: str | None) -> Context:
    root = normalise_uri(uri)
    options = dict(storage_options or {})
    store = open_store(root, options)
    return Context(
        root=root,
        store=store,
        storage_options=options,
        actor=actor,
        load_engine=_load_engine,
        load_comparer=_load_comparer,
        find_large_comparer=_find_large_comparer,
        load_rewriter=_load_rewriter,
        find_loader=_find_loader,
    )


def _load_engine() -> SqlEngine:
    # DuckDB takes a while to load, and few need it.
    from anabranch.duck.engine import default_engine

    return default_engine()


def _load_comparer() -> RowComparer:
    from anabranch.duck.comparing import default_comparer

    return default_comparer()


def _find_large_comparer() -> LargeComparer | None:
    if find_spec("pyspark") is None:
        return None
    from anabranch.duck.comparing import single_comparer
    from anabranch.spark.comparing import SparkComparer

    return SparkComparer(single_comparer)


def _load_rewriter() -> Rewriter:
    # Spark is loaded, and started, only for those who ask for it.
    from anabranch.spark.rewriting import SparkRewriter

    return SparkRewriter()


def _find_loader() -> Loader | None:
    if find_spec("pyspark") is None:
        return None
    from anabranch.spark.loading import SparkLoader

    return SparkLoader()
