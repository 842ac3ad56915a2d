"""Every public write of one dataset's handle, and a lake beside which such a dataset lies."""

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa

import anabranch as ab
from anabranch.errors import DatasetNotFoundError
from tests.faults.lakes import RIVAL, State
from tests.faults.writes import Act, Write, do_nothing, names
from tests.repo.io.moving import copy_objects


def stock(repo: ab.Repository, branch: str = "main") -> ab.Dataset:
    return ab.dataset(_uri(repo, "stock")).branch_checkout(branch)


def fill_stock(repo: ab.Repository) -> None:
    """Four fragments, some rows deleted, a branch with rows of its own, a tag, a base and a shallow clone."""
    made = lance.write_dataset(_rows(0, 40), _uri(repo, "stock"), max_rows_per_file=10, enable_stable_row_ids=True)
    made.delete("id in (3, 30)")
    handle = stock(repo)
    handle.base_add(f"{repo.uri}/aside/cold", name="cold", is_dataset_root=True)
    handle.tag_create("t")
    handle.branch_create("dev")
    stock(repo, "dev").append(_rows(40, 42))
    stock(repo).shallow_clone(_uri(repo, "shallow"))


def _rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


def _uri(repo: ab.Repository, name: str) -> str:
    return f"{repo.uri}/aside/{name}.lance"


def read_stock(repo: ab.Repository) -> State:
    """All that the dataset's handle shows, and its clones."""
    handle = stock(repo)
    branches = ["main", *(info.name for info in handle.branch_list())]
    return {
        "branches": {name: _ids(stock(repo, name)) for name in branches},
        "tags": {info.name: (info.branch, info.version) for info in handle.tag_list() if info.name in {"t", "new"}},
        "bases": [base.name for base in handle.base_list()],
        "clones": [_look_if_there(repo, name) for name in ("shallow", "new", "copy")],
    }


def read_held(repo: ab.Repository) -> State:
    return {**read_stock(repo), "held": len(stock(repo).clone_list())}


def _ids(handle: ab.Dataset) -> list[int]:
    return sorted(handle.to_arrow().column("id").to_pylist())


def _look_if_there(repo: ab.Repository, name: str) -> list[int] | None:
    if not any(Path(_uri(repo, name)).glob("_versions/*.manifest")):
        return None  # an unfinished copy is not a dataset
    try:
        return _ids(ab.dataset(_uri(repo, name)))
    except DatasetNotFoundError:
        return None


def _release(repo: ab.Repository) -> None:
    tag = stock(repo).clone_list()[0].tag
    assert tag is not None
    stock(repo).clone_release(tag)


def _copy(repo: ab.Repository) -> None:
    copy_objects(_uri(repo, "stock"), _uri(repo, "copy"), {})


def _relocate(repo: ab.Repository) -> None:
    ab.dataset(_uri(repo, "copy")).relocate()
    assert _ids(ab.dataset(_uri(repo, "copy")).branch_checkout("dev")) == _ids(stock(repo, "dev"))


def _lose_a_ref(repo: ab.Repository) -> None:
    """Leave a branch's files without their ref, as a creator does that dies."""
    stock(repo).branch_create("lost")
    Path(_uri(repo, "stock"), "_refs/branches/lost.json").unlink()


def _add_base(repo: ab.Repository) -> None:
    stock(repo).base_add(f"{repo.uri}/aside/warm", name="warm")


def _tag(repo: ab.Repository) -> None:
    stock(repo).tag_create(RIVAL)


def on_stock(act: Act, prepare: Act = do_nothing, *, held: bool = False) -> Write:
    look = read_held if held else read_stock
    return Write(act=act, prepare=prepare, look=look, rival=_tag, may_be_done=True)


DATASET_WRITES: dict[str, list[Write]] = {
    "append": [
        on_stock(lambda repo: stock(repo).append(_rows(50, 52))),
        on_stock(lambda repo: stock(repo, "dev").append(_rows(50, 52), base="cold")),
    ],
    "base_add": [on_stock(lambda repo: stock(repo).base_add(f"{repo.uri}/aside/warm", name="warm"))],
    "base_remove": [on_stock(lambda repo: stock(repo).base_remove("warm"), _add_base)],
    "branch_create": [on_stock(lambda repo: stock(repo).branch_create("new"))],
    "branch_delete": [on_stock(lambda repo: stock(repo).branch_delete("dev"))],
    "branch_set_metadata": [on_stock(lambda repo: stock(repo).branch_set_metadata("dev", {"owner": "ada"}))],
    "cleanup": [on_stock(lambda repo: stock(repo).cleanup(keep_last=1, grace=timedelta()))],
    "clone_drop": [on_stock(lambda repo: stock(repo).clone_drop(_uri(repo, "shallow")))],
    "clone_release": [on_stock(_release, held=True)],
    "compact": [on_stock(lambda repo: stock(repo).compact())],
    "deep_clone": [on_stock(lambda repo: stock(repo).deep_clone(_uri(repo, "new")))],
    "doctor": [on_stock(lambda repo: stock(repo).doctor(repair=True), _lose_a_ref)],
    "fork_branch_from_state": [on_stock(lambda repo: stock(repo).fork_branch_from_state("main", "new", 1))],
    "move_fragments": [on_stock(lambda repo: stock(repo).move_fragments(to="cold", fragments=[0, 2]))],
    "relocate": [on_stock(_relocate, _copy)],
    "restore": [on_stock(lambda repo: stock(repo).restore(1))],
    "shallow_clone": [on_stock(lambda repo: stock(repo).shallow_clone(_uri(repo, "new")))],
    "tag_create": [on_stock(lambda repo: stock(repo).tag_create("new"))],
    "tag_delete": [on_stock(lambda repo: stock(repo).tag_delete("t"))],
    "tag_set_metadata": [on_stock(lambda repo: stock(repo).tag_set_metadata("t", {"owner": "ada"}))],
    "tag_update": [on_stock(lambda repo: stock(repo).tag_update("t", ("dev", None)))],
}
DATASET_READS = names(
    "base_list branch branch_checkout branch_get branch_list clone_list count_rows deleted_offsets home layout open "
    "schema storage_report tag_checkout tag_get tag_list to_arrow uri version version_list versions"
)
