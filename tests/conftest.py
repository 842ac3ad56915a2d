"""Where tests put their data: a `location` is a fresh root on local disk or on an S3 server. And one Spark for all."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

import anabranch as ab
from anabranch.storage import local_store
from tests.lake_templates import Cast, Fill, LakeTemplate
from tests.s3_server import s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "quick", deadline=None, max_examples=6, derandomize=True, suppress_health_check=list(HealthCheck)
)
settings.register_profile("proof", deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Location:
    """A root to put things below, and the options that reach it."""

    root: str
    storage_options: dict[str, str] = field(default_factory=dict)
    bucket: str = ""

    @property
    def is_local(self) -> bool:
        return not self.bucket

    def __truediv__(self, name: str) -> str:
        return f"{self.root}/{name}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof", action="store_true", help="all on S3 too, and long random runs")


def pytest_configure(config: pytest.Config) -> None:
    proof = config.getoption("--proof")
    settings.load_profile("proof" if proof else "quick")
    if not proof:
        _skip_syncs(pytest.MonkeyPatch())
        _work_in_memory()


# A file system in memory, and how much of it must be free. A whole run leaves less than half of that.
_MEMORY = "/dev/shm"  # noqa: S108 - pytest makes a folder in it that belongs to this user alone
_FREE_MEMORY = 8 << 30


def _work_in_memory() -> None:
    """Put the files of tests into memory if it has room, unless the environment names a folder for them.

    Tests write many small files, which takes several times as long on a disk. The proof uses a disk.
    """
    if os.path.isdir(_MEMORY) and min(shutil.disk_usage(_MEMORY).free, _available_memory()) > _FREE_MEMORY:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)


def _available_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


_SYNC_FILE, _SYNC_FILE_SYSTEM = os.fsync, local_store.sync_file_system


def _skip_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: lakes of tests need not survive a power loss.

    Everything else that a durable write does stays the same. The proof waits, and so do the tests of durability.
    """
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    monkeypatch.setattr(local_store, "sync_file_system", lambda _folder: None)


@pytest.fixture
def real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the disk as a program outside the tests does."""
    monkeypatch.setattr(os, "fsync", _SYNC_FILE)
    monkeypatch.setattr(local_store, "sync_file_system", _SYNC_FILE_SYSTEM)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take a `location` run on local disk; those marked s3, under --proof all not marked local, on S3."""
    if "location" not in metafunc.fixturenames:
        return
    proof = metafunc.config.getoption("--proof")
    marked = {mark.name for mark in metafunc.definition.iter_markers()}
    on_s3 = "s3" in marked or (proof and "local" not in marked)
    # One worker holds the one server, unless there is enough to do for several.
    marks = [] if proof else [pytest.mark.xdist_group("s3")]
    remote = [pytest.param("s3", marks=marks)] if on_s3 else []
    metafunc.parametrize("location", ["local", *remote], indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests for the proof and for one worker before others see them, then let xdist's groups take effect."""
    for item in items:
        _mark(item)
    yield
    for item in items:
        # pytest-xdist up to 3.8 writes the group into an attribute that pytest reads no more since 9.2
        # (pytest-xdist issue 1386). Without this the groups have no effect, and no error is reported.
        named = vars(item).get("_nodeid")
        if named is not None and named != item.nodeid:
            item._id = type(item._id).parse(named)


def _mark(item: pytest.Item) -> None:
    """Keep tests that share a fixture of their module in one worker, so that the fixture is built once.

    S3 through Spark is tested in the folder of Spark only. Other tests of both are for the proof, and so is the
    command line on S3, because it calls the library.
    """
    through_spark = item.get_closest_marker("spark") is not None and item.path.parent.name != "spark"
    if _is_on_s3(item) and (through_spark or item.path.parent.name == "cli"):
        item.add_marker(pytest.mark.proof)
    if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
        definitions = item._fixtureinfo.name2fixturedefs.values()
        if any(found[-1].scope == "module" for found in definitions):
            item.add_marker(pytest.mark.xdist_group(item.path.name))


def _is_on_s3(item: pytest.Item) -> bool:
    return (
        isinstance(item, pytest.Function)
        and getattr(item, "callspec", None) is not None
        and (item.callspec.params.get("location") == "s3")
    )


@pytest.fixture(scope="session")
def s3_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3_server(tmp_path_factory.mktemp("s3")) as options:
        yield options


_NUMBERS = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder; all have names of one length, so that a lake that was made in one can be put into another."""
    return _make_folder(tmp_path_factory, request.node.name)


def _make_folder(factory: pytest.TempPathFactory, title: str) -> Path:
    name = re.sub(r"\W", "_", title, flags=re.ASCII)[:30].ljust(30, "_")
    return factory.mktemp(f"{name}{next(_NUMBERS):06d}", numbered=False)


@pytest.fixture
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "local":
        return Location(root=str(tmp_path))
    found: Location = request.getfixturevalue("s3_location")
    return found


@pytest.fixture
def s3_location(s3_options: dict[str, str]) -> Location:
    """A fresh root on S3, for what happens only there; mark such tests with `xdist_group("s3")`."""
    return _remote_location(s3_options)


def _remote_location(options: dict[str, str]) -> Location:
    return Location(root=f"s3://lake/{uuid4().hex}", storage_options=options, bucket="lake")


@pytest.fixture(scope="session")
def lake_templates() -> dict[tuple[Fill, str], LakeTemplate]:
    """The lakes that were built so far, by what filled them and the store they are for."""
    return {}


@pytest.fixture
def cast(
    location: Location, lake_templates: dict[tuple[Fill, str], LakeTemplate], tmp_path_factory: pytest.TempPathFactory
) -> Cast:
    """Put a lake at the location that holds what a function fills it with, which is called only the first time."""

    def write_copy(fill: Fill) -> ab.Repository:
        if (fill, location.bucket) not in lake_templates:
            folder = _make_folder(tmp_path_factory, fill.__name__)
            built = Location(root=str(folder)) if location.is_local else _remote_location(location.storage_options)
            lake_templates[fill, location.bucket] = LakeTemplate(built, fill)
        return lake_templates[fill, location.bucket].write_copy(location)

    return write_copy


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One session for all tests; most need none, and should not wait for it."""
    session = ab.spark_session()
    yield session
    session.stop()
