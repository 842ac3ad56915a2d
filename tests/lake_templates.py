"""Lakes that many tests begin with: each is built once, and from then on put down again wherever one is wanted."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anabranch as ab
from anabranch.storage import in_parallel, open_store
from tests.sealing import reseal

if TYPE_CHECKING:
    from tests.conftest import Location

Fill = Callable[[ab.Repository], object]
Cast = Callable[[Fill], ab.Repository]


def build(location: "Location", fill: Fill) -> ab.Repository:
    """Make a repository of ada's at a location, and fill it."""
    repo = ab.init(location / "lake", storage_options=location.storage_options, actor="ada")
    fill(repo)
    return repo


class LakeTemplate:
    """What the objects of a lake hold.

    Some files name the location of the lake. Locations on one store have names of one length, so that one name can
    replace another without moving any other byte.
    """

    def __init__(self, location: "Location", fill: Fill) -> None:
        store = open_store(build(location, fill).uri, location.storage_options)
        self._name = _name_of(location)
        self._objects = {info.path: store.get(info.path) for info in store.list()}

    def write_copy(self, location: "Location") -> ab.Repository:
        """Put a copy of the lake at a location, and open it as ada."""
        name = _name_of(location)
        assert len(name) == len(self._name)
        objects = {path: _renamed(path, data, self._name, name) for path, data in self._objects.items()}
        if location.is_local:
            _write_files(Path(location / "lake"), objects)
        else:
            store = open_store(location / "lake", location.storage_options)
            in_parallel(lambda one: store.put(*one), objects.items())
        return ab.open(location / "lake", storage_options=location.storage_options, actor="ada")


def _renamed(path: str, data: bytes, old: bytes, new: bytes) -> bytes:
    return reseal(path, data.replace(old, new)) if old in data else data


def _name_of(location: "Location") -> bytes:
    return location.root.rpartition("/")[2].encode()


def _write_files(folder: Path, objects: dict[str, bytes]) -> None:
    for path in sorted({(folder / path).parent for path in objects}):
        path.mkdir(parents=True, exist_ok=True)
    for name, data in objects.items():
        (folder / name).write_bytes(data)
