"""A head with many tables is opened without reading their entries, and each entry is checked when it is read."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import CorruptError, TableNotFoundError
from tests.conftest import Location
from tests.sealing import sealed, unsealed

SCHEMA = pa.schema([("id", pa.int64())])
TABLES = 40
KEYS = [f"s.t{number:02d}" for number in range(TABLES)]


def make(location: Location) -> ab.Repository:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    with repo.transaction() as tx:
        for key in KEYS:
            tx.create_table(key, SCHEMA, primary_key=["id"])
    with repo.transaction() as tx:
        tx.drop_table(KEYS[1])
        tx.create_table("s.new", SCHEMA)
    return repo


def full_map_of(location: Location) -> Path:
    (found,) = [
        path for path in Path(location / "lake", "_commits").glob("*.json") if b'"full_map":{"s' in path.read_bytes()
    ]
    return found


def change_entry(location: Location, key: str, **values: Any) -> None:
    path = full_map_of(location)
    fields = json.loads(path.read_bytes())
    fields["full_map"][key].update(values)
    path.write_bytes(sealed(fields))


@pytest.mark.local
@pytest.mark.parametrize(
    "values",
    [
        {"dataset": "../../x.lance"},
        {"home": "../.."},
        {"version": "x"},
        {"rows": -1},
        {"primary_key": [1]},
        {"primary_key": ["}", '"s.t00":{', "x" * 2000], "rows": None},
    ],
)
def test_wrong_entry_is_refused_when_it_is_read_and_others_are_not(location: Location, values: dict[str, Any]) -> None:
    make(location)
    change_entry(location, KEYS[7], **values)
    snapshot = ab.open(location / "lake").snapshot()
    assert len(snapshot[KEYS[6]].to_arrow()) == 0
    for _ in range(2):
        with pytest.raises(CorruptError, match=full_map_of(location).name):
            snapshot[KEYS[7]]
    with pytest.raises(CorruptError):
        dict(snapshot.entries)


@pytest.mark.local
def test_wrong_name_is_refused_when_the_tables_are_listed(location: Location) -> None:
    make(location)
    path = full_map_of(location)
    fields = json.loads(path.read_bytes())
    fields["full_map"]["../x"] = fields["full_map"][KEYS[0]]
    path.write_bytes(sealed(fields))
    snapshot = ab.open(location / "lake").snapshot()
    assert snapshot[KEYS[2]].primary_key == ("id",)
    with pytest.raises(CorruptError, match="does not have the form"):
        list(snapshot)


@pytest.mark.local
@pytest.mark.parametrize("damage", ["flipped", "missing", "cut", "another commit"])
def test_damaged_full_map_is_refused_when_it_is_opened(location: Location, damage: str) -> None:
    make(location)
    path = full_map_of(location)
    data = path.read_bytes()
    match damage:
        case "flipped":
            path.write_bytes(data.replace(b'"rows":0', b'"rows":1', 1))
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case _:
            fields = json.loads(data)
            fields["commit"]["graph_commit_id"] = "0" * 26
            path.write_bytes(sealed(fields))
    with pytest.raises(CorruptError):
        ab.open(location / "lake").snapshot()


@pytest.mark.local
@pytest.mark.parametrize("form", ["earlier format", "spaces"])
def test_full_map_in_another_form_is_read(location: Location, form: str) -> None:
    """Objects of earlier releases have no checksum, and JSON may be spelled in other ways."""
    make(location)
    path = full_map_of(location)
    data = unsealed(path.read_bytes())
    path.write_bytes(data if form == "earlier format" else json.dumps(json.loads(data), indent=1).encode())
    snapshot = ab.open(location / "lake").snapshot()
    assert len(snapshot) == TABLES
    assert snapshot[KEYS[3]].entry.dataset == "s/t03.lance"


@pytest.mark.local
def test_entry_with_odd_column_names_is_found(location: Location) -> None:
    repo = make(location)
    odd = ['"},"full_map":{', "x" * 3000]
    with repo.transaction() as tx:
        for number in range(60):
            tx.create_table(f"s.odd{number}", pa.schema([(name, pa.int64()) for name in odd]), primary_key=odd)
    snapshot = ab.open(location / "lake").snapshot()
    assert snapshot["s.t05"].entry.dataset == "s/t05.lance"
    assert snapshot["s.odd3"].primary_key == tuple(odd)


@pytest.mark.local
def test_dropped_and_missing_tables_are_not_found(location: Location) -> None:
    make(location)
    snapshot = ab.open(location / "lake").snapshot()
    assert KEYS[1] not in snapshot
    assert "s.nope" not in snapshot
    assert KEYS[0] in snapshot
    for key in (KEYS[1], "s.nope"):
        with pytest.raises(TableNotFoundError):
            snapshot[key]
