"""Every kind of damage that doctor is to name, really made."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.format import staging
from anabranch.format.doctor.findings_and_repairs import FindingKind as Kind
from anabranch.repo.runs.engine_access import table_writes
from anabranch.storage.options import lance_options
from tests.repo.conftest import ORDERS, table
from tests.repo.doctor.sample_repository import COMMITS, RENAMED, Files
from tests.sealing import hint, reseal


@dataclass(frozen=True)
class Damage:
    """Something done to files, what doctor calls it, and what a repair does.

    It restores everything, or sets a torn entry aside; then the `lost` refs do not exist any more.
    """

    kind: Kind
    do: Callable[[Files], None]
    is_repaired: bool = False
    is_set_aside: bool = False
    lost: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.do.__name__


def missing_data_file(files: Files) -> None:
    files.delete(files.data_of(ORDERS, "dev"))


def truncated_data_file(files: Files) -> None:
    files.tear(files.data_of(ORDERS, "dev"))


def truncated_manifest(files: Files) -> None:
    files.tear(files.manifest(ORDERS, "dev"))


def missing_detached_manifest(files: Files) -> None:
    files.delete(files.manifest(ORDERS, "dev/deep"))


def missing_deletion_file(files: Files) -> None:
    (path,) = files.list(f"{files.home(ORDERS, 'dev')}/_deletions")
    files.delete(path)


def missing_index(files: Files) -> None:
    files.remove_folder(files.list("tables/in_c_sales/orders.lance/_indices")[0].rpartition("/")[0])


def truncated_index(files: Files) -> None:
    files.tear(files.list("tables/in_c_sales/orders.lance/_indices")[0])


def missing_dataset(files: Files) -> None:
    files.remove_folder("tables/in_c_sales/customers.lance")


def ref_without_tree(files: Files) -> None:
    files.remove_folder(files.home(ORDERS, "live"))


def home_without_ref(files: Files) -> None:
    files.delete(files.ref_of(ORDERS, "dev"))


def torn_ref(files: Files) -> None:
    files.tear(files.ref_of(ORDERS, "dev/deep"))


def torn_entry_between_others(files: Files) -> None:
    files.tear(files.log("main", 2))


def emptied_entry_between_others(files: Files) -> None:
    files.put(files.log("main", 2), b"")


def torn_newest_entry(files: Files) -> None:
    files.tear(files.log("dev", files.head("dev")))


def torn_newest_entry_without_copy(files: Files) -> None:
    number = files.head("dev")
    files.delete("_versions/dev/hint")
    files.tear(files.log("dev", number))


def put_after_the_newest(files: Files, data: bytes) -> None:
    """What a power loss leaves of an entry whose bytes never reached the disk; nothing else knows of it."""
    files.put(files.log("dev", files.head("dev") + 1), data)


def half_an_entry_after_the_newest(files: Files) -> None:
    data = files.get(files.log("dev", files.head("dev")))
    put_after_the_newest(files, data[: len(data) // 2])


def empty_entry_after_the_newest(files: Files) -> None:
    put_after_the_newest(files, b"")


def zeros_after_the_newest_entry(files: Files) -> None:
    data = files.get(files.log("dev", files.head("dev")))
    put_after_the_newest(files, data[:100] + bytes(len(data) - 100))


def zeros_as_a_tag(files: Files) -> None:
    files.put(files.log("dev", 1).replace("_versions/dev", "_tags/lost"), bytes(300))


def gap(files: Files) -> None:
    files.delete(files.log("main", 2))


def gap_without_a_record(files: Files) -> None:
    files.delete(files.log("dev", 1))


def lost_newest_entry(files: Files) -> None:
    files.delete(files.log("main", files.head("main")))


def misplaced_entry(files: Files) -> None:
    files.put(files.log("dev/deep", 2), files.get(files.log("dev", 2)))
    files.delete("_versions/dev%2Fdeep/hint")


def entry_of_a_newer_format(files: Files) -> None:
    files.edit(files.log("dev", 2), format=99)


def missing_main(files: Files) -> None:
    files.remove_folder("_versions/main")


def missing_commit(files: Files) -> None:
    files.delete(files.commit("dev"))


def missing_first_commit(files: Files) -> None:
    files.delete(f"_commits/{files.repo.list_commits('main', limit=None)[-1].graph_commit_id}.json")


def torn_commit(files: Files) -> None:
    files.tear(files.commit("main~1"))


def commit_with_other_content(files: Files) -> None:
    path = files.commit("live")
    files.put(path, reseal(path, files.get(path).replace(b'"append (6,)"', b'"append (9,)"')))


def commit_replaced_by_another(files: Files) -> None:
    files.put(files.commit("dev"), files.get(files.commit("dev/deep")))


def commit_of_a_newer_format(files: Files) -> None:
    files.edit(files.commit("dev"), format=99)


def commit_before_its_parent(files: Files) -> None:
    commit = files.repo.get_commit(files.repo.snapshot_of("dev/deep").id)
    own = rf'("commit":\{{[^{{}}]*)"generation":{commit.generation}(,"graph_commit_id":"{commit.graph_commit_id}")'
    files.replace_everywhere(own, r'\1"generation":0\2')


def entry_before_the_one_before(files: Files) -> None:
    files.edit(files.log("dev", 2), at=1)


def torn_clone(files: Files) -> None:
    ab.clone(files.repo.uri, f"{files.repo.uri}-clone", shallow=True)
    (path,) = files.list("_clones", ".json")
    files.tear(path)
    files.delete(path.rpartition("/")[0] + "/hint")


def torn_mark(files: Files) -> None:
    files.tear("_repo.json")


def missing_mark(files: Files) -> None:
    files.delete("_repo.json")


def mark_of_a_newer_format(files: Files) -> None:
    files.edit("_repo.json", format=99)


def tag_of_a_missing_commit(files: Files) -> None:
    path = files.list("_tags/v1", ".json")[0]
    files.edit(path, commit_id="01M7HKD4HAPB0VRYGQF7KB4VR7")
    files.delete("_tags/v1/hint")


def torn_tag(files: Files) -> None:
    files.tear(files.list("_tags/v1", ".json")[0])
    files.delete("_tags/v1/hint")


def torn_run(files: Files) -> None:
    first = files.list("_runs", ".json")[-1]
    files.tear(first)


def wrong_hint(files: Files) -> None:
    """Whole by its checksum, and of a version that never was."""
    data = files.get(files.log("dev", 1))
    files.put("_versions/dev/hint", hint(99, data))


def torn_hint(files: Files) -> None:
    files.tear("_versions/dev/hint")


def external_write(files: Files) -> None:
    options = files.repo.storage_options
    uri = files.repo.snapshot_of("main")[RENAMED].uri
    lance.write_dataset(table(99), uri, mode="append", storage_options=lance_options(options) if options else None)


def unsettled_home(files: Files) -> None:
    home = files.home(RENAMED)
    ordinary = [path for path in files.list(f"{home}/_versions", ".manifest") if "/d" not in path]
    files.delete(ordinary[0])
    files.delete(f"{home}/_versions/latest_version_hint.json")


def torn_history(files: Files) -> None:
    files.tear(files.list(f"{COMMITS}/_versions", ".manifest")[0])


def history_with_another_commit(files: Files) -> None:
    row = lance.dataset(f"{files.repo.uri}/{COMMITS}").to_table().slice(0, 1)
    strange = row.set_column(0, row.schema.field(0), [["01M7HKD4HAPB0VRYGQF7KB4VR7"]])
    lance.write_dataset(strange, f"{files.repo.uri}/{COMMITS}", mode="append")


def history_that_leaves_one_out(files: Files) -> None:
    second = files.repo.list_commits("main", limit=None)[-2].graph_commit_id
    lance.dataset(f"{files.repo.uri}/{COMMITS}").delete(f"graph_commit_id = '{second}'")


def wrong_row_count(files: Files) -> None:
    version = files.entry(ORDERS, "live").version
    files.replace_everywhere(rf'"rows":\d+(,"version":"{version}")', r'"rows":77\1')


def zeros_in_a_data_file(files: Files) -> None:
    path = files.data_of(ORDERS, "dev")
    files.put(path, bytes(len(files.get(path))))


def torn_deletion_file(files: Files) -> None:
    (path,) = files.list(f"{files.home(ORDERS, 'dev')}/_deletions")
    files.tear(path)


def zeros_in_a_deletion_file(files: Files) -> None:
    (path,) = files.list(f"{files.home(ORDERS, 'dev')}/_deletions")
    files.put(path, bytes(len(files.get(path))))


def flip(files: Files, path: str, at: bytes) -> None:
    """Flip one bit right after some bytes."""
    data = bytearray(files.get(path))
    data[data.index(at) + len(at)] ^= 1
    files.put(path, bytes(data))


def flipped_mark(files: Files) -> None:
    flip(files, "_repo.json", b'"id":"')


def flipped_row_count(files: Files) -> None:
    flip(files, files.commit("dev"), b'"rows":')


def flipped_newest_entry_without_copy(files: Files) -> None:
    """The history tables know the commit that it published."""
    number = files.head("dev")
    files.delete("_versions/dev/hint")
    flip(files, files.log("dev", number), b'"at":1')


def flipped_event_without_copy(files: Files) -> None:
    """Complete but damaged: it was acknowledged, and nothing else records what it was. So it stays."""
    files.repo.branch_protect("dev")
    number = files.head("dev")
    files.delete("_versions/dev/hint")
    flip(files, files.log("dev", number), b'"at":1')


def append_unchecked(files: Files, rows: pa.Table) -> None:
    """Append rows as a writer that trusts its source does."""
    with files.repo.transaction("dev") as tx:
        prepared = table_writes(tx).prepare(ORDERS)
        table_writes(tx).append_fragments(
            prepared, staging.write_fragments(prepared.version_ref, rows), check_keys=False
        )
    files.repo.history_sync()


def repeated_keys(files: Files) -> None:
    append_unchecked(files, table(4))


def keys_without_value(files: Files) -> None:
    """No writer lets them in, so that another column is made the key, in all that is recorded."""
    append_unchecked(files, pa.table({"id": pa.array([9], pa.int64()), "v": pa.array([None], pa.string())}))
    version = files.entry(ORDERS, "dev").version
    files.replace_everywhere(rf'"primary_key":\["id"\](,"rows":\d+,"version":"{version}")', r'"primary_key":["v"]\1')


def with_proof(damage: Damage) -> Any:
    """For one that is much like another."""
    return pytest.param(damage, marks=pytest.mark.proof)


DAMAGES = [
    Damage(Kind.MISSING_DATA_FILE, missing_data_file),
    Damage(Kind.WRONG_SIZE, truncated_data_file),
    Damage(Kind.DAMAGED_MANIFEST, truncated_manifest, is_repaired=True),
    Damage(Kind.MISSING_VERSION, missing_detached_manifest, is_repaired=True),
    Damage(Kind.MISSING_DELETION_FILE, missing_deletion_file),
    Damage(Kind.MISSING_INDEX, missing_index),
    with_proof(Damage(Kind.DAMAGED_INDEX, truncated_index)),
    Damage(Kind.MISSING_DATASET, missing_dataset),
    Damage(Kind.MISSING_HOME, ref_without_tree),
    Damage(Kind.MISSING_REF, home_without_ref, is_repaired=True),
    Damage(Kind.DAMAGED_REF, torn_ref, is_repaired=True),
    Damage(Kind.DAMAGED_ENTRY, torn_entry_between_others, is_repaired=True),
    with_proof(Damage(Kind.DAMAGED_ENTRY, emptied_entry_between_others, is_repaired=True)),
    Damage(Kind.DAMAGED_ENTRY, torn_newest_entry, is_repaired=True),
    Damage(Kind.DAMAGED_ENTRY, torn_newest_entry_without_copy, is_repaired=True),
    Damage(Kind.TORN_ENTRY, half_an_entry_after_the_newest, is_set_aside=True),
    with_proof(Damage(Kind.TORN_ENTRY, empty_entry_after_the_newest, is_set_aside=True)),
    Damage(Kind.TORN_ENTRY, zeros_after_the_newest_entry, is_set_aside=True),
    Damage(Kind.TORN_ENTRY, zeros_as_a_tag, is_set_aside=True),
    Damage(Kind.LOG_GAP, gap, is_repaired=True),
    Damage(Kind.LOG_GAP, gap_without_a_record),
    Damage(Kind.LOG_GAP, lost_newest_entry, is_repaired=True),
    Damage(Kind.MISPLACED_ENTRY, misplaced_entry),
    with_proof(Damage(Kind.NEWER_FORMAT, entry_of_a_newer_format)),
    Damage(Kind.MISSING_BRANCH, missing_main),
    Damage(Kind.MISSING_COMMIT, missing_commit, is_repaired=True),
    Damage(Kind.MISSING_COMMIT, missing_first_commit, is_repaired=True),
    Damage(Kind.DAMAGED_COMMIT, torn_commit, is_repaired=True),
    Damage(Kind.DIFFERENT_COMMIT, commit_with_other_content, is_repaired=True),
    with_proof(Damage(Kind.DIFFERENT_COMMIT, commit_replaced_by_another, is_repaired=True)),
    Damage(Kind.NEWER_FORMAT, commit_of_a_newer_format),
    Damage(Kind.WRONG_ORDER, commit_before_its_parent),
    with_proof(Damage(Kind.WRONG_ORDER, entry_before_the_one_before)),
    Damage(Kind.DAMAGED_ENTRY, torn_clone),
    Damage(Kind.DAMAGED_MARK, torn_mark, is_repaired=True),
    Damage(Kind.MISSING_MARK, missing_mark, is_repaired=True),
    Damage(Kind.NEWER_FORMAT, mark_of_a_newer_format),
    Damage(Kind.BROKEN_TAG, tag_of_a_missing_commit),
    Damage(Kind.TORN_ENTRY, torn_tag, is_set_aside=True, lost=("v1",)),
    Damage(Kind.DAMAGED_ENTRY, torn_run),
    Damage(Kind.WRONG_HINT, wrong_hint, is_repaired=True),
    Damage(Kind.EXTERNAL_WRITE, external_write),
    Damage(Kind.UNSETTLED_HOME, unsettled_home, is_repaired=True),
    Damage(Kind.DAMAGED_HISTORY, torn_history, is_repaired=True),
    Damage(Kind.DAMAGED_HISTORY, history_with_another_commit, is_repaired=True),
    with_proof(Damage(Kind.DAMAGED_HISTORY, history_that_leaves_one_out, is_repaired=True)),
    Damage(Kind.WRONG_ROW_COUNT, wrong_row_count),
    Damage(Kind.UNREADABLE_ROWS, zeros_in_a_data_file, options=("--rows",)),
    with_proof(Damage(Kind.DAMAGED_DELETION_FILE, torn_deletion_file)),
    Damage(Kind.DAMAGED_DELETION_FILE, zeros_in_a_deletion_file),
    Damage(Kind.DAMAGED_MARK, flipped_mark, is_repaired=True),
    Damage(Kind.DAMAGED_COMMIT, flipped_row_count, is_repaired=True),
    with_proof(Damage(Kind.DAMAGED_ENTRY, flipped_newest_entry_without_copy, is_repaired=True)),
    Damage(Kind.DAMAGED_ENTRY, flipped_event_without_copy),
    Damage(Kind.DUPLICATE_KEYS, repeated_keys, options=("--rows",)),
    Damage(Kind.NULL_KEYS, keys_without_value, options=("--rows",)),
]


class Harm(StrEnum):
    """What happens to the bytes of a file."""

    FLIPPED = "flipped"
    TRUNCATED = "truncated"
    EMPTIED = "emptied"
    ZEROS = "zeros"
    DELETED = "deleted"
    ANOTHERS = "anothers"


# What kind of file a path is. The first pattern that is found in it decides.
FILE_KINDS = {
    "mark": r"^_repo\.json$",
    "mark copy": r"^_repo_copy\.json$",
    "hint": r"/hint$",
    "log entry": r"^_versions/",
    "commit": r"^_commits/",
    "tag": r"^_tags/",
    "run": r"^_runs/",
    "history table": r"^_graph_",
    "staged manifest": r"/_versions/d\d+\.manifest$",
    "manifest": r"/_versions/\d+\.manifest$",
    "version hint": r"/latest_version_hint\.json$",
    "transaction": r"/_transactions/",
    "branch ref": r"/_refs/branches/",
    "deletion file": r"/_deletions/",
    "index file": r"/_indices/",
    "data file": r"/data/",
}
# Lance has no checksums: what one bit changes in its files shows, if at all, when they are read.
OURS = frozenset({"mark", "mark copy", "hint", "log entry", "commit", "tag", "run"})


def kind_of(path: str) -> str | None:
    return next((kind for kind, pattern in FILE_KINDS.items() if re.search(pattern, path)), None)


@dataclass(frozen=True)
class AnyDamage:
    """Something done to any one file of a repository."""

    kind: str
    harm: Harm
    path: str

    def do(self, files: Files, chance: Random) -> None:
        data = files.get(self.path)
        match self.harm:
            case Harm.FLIPPED:
                bit = chance.randrange(len(data) * 8)
                flipped = bytes([data[bit // 8] ^ 1 << bit % 8])
                files.put(self.path, data[: bit // 8] + flipped + data[bit // 8 + 1 :])
            case Harm.TRUNCATED:
                files.put(self.path, data[: chance.randrange(1, len(data))])
            case Harm.EMPTIED:
                files.put(self.path, b"")
            case Harm.ZEROS:
                files.put(self.path, bytes(len(data)))
            case Harm.DELETED:
                files.delete(self.path)
            case Harm.ANOTHERS:
                files.put(self.path, files.get(chance.choice(siblings(files, self.path))))


def siblings(files: Files, path: str) -> list[str]:
    """Files of the same kind with other bytes.

    Those of Lance have another size: nothing shows that a data file holds the rows of another one of the same schema.
    """
    data, kind = files.get(path), kind_of(path)
    others = [(other, files.get(other)) for other in files.list() if kind_of(other) == kind]
    return [other for other, held in others if held != data and (kind in OURS or len(held) != len(data))]


def any_damages(files: Files, count: int, chance: Random) -> list[AnyDamage]:
    """Every kind of file with every harm in turn, each time another file."""
    by_kind: dict[str, list[str]] = {}
    for path in files.list():
        if (kind := kind_of(path)) is not None and len(files.get(path)) > 1:
            by_kind.setdefault(kind, []).append(path)
    assert by_kind.keys() == FILE_KINDS.keys()
    pairs = [(kind, harm) for harm in Harm for kind in by_kind if kind in OURS or harm is not Harm.FLIPPED]
    chance.shuffle(pairs)
    made = []
    for kind, harm in islice(cycle(pairs), count):
        path = chance.choice(by_kind[kind])
        harm = Harm.ZEROS if harm is Harm.ANOTHERS and not siblings(files, path) else harm
        made.append(AnyDamage(kind, harm, path))
    return made
