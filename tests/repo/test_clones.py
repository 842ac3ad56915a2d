"""The clones of a repository as their source knows them."""

import pytest

import anabranch as ab
from anabranch.errors import NotFoundError
from anabranch.ids import TableKey
from anabranch.repo.clones import CloneKind, Clones, CloneState
from tests.repo.conftest import CUSTOMERS, ORDERS

KEYS = [TableKey.parse(ORDERS), TableKey.parse(CUSTOMERS)]


@pytest.mark.s3
def test_a_registered_clone_is_held_until_it_is_released(lake: ab.Repository) -> None:
    clones = Clones(lake._context)
    head = lake.head_commit_id_for_branch("main")
    first = clones.register(target="/there", kind=CloneKind.SHALLOW, commit_id=head, keys=KEYS)
    second = clones.register(target="/elsewhere", kind=CloneKind.DEEP, commit_id=head, keys=KEYS[:1])

    assert [(held.clone_id, held.commit_id, held.keys) for held in clones.iter_held()] == [
        (first.id, head, frozenset(KEYS)),
        (second.id, head, frozenset(KEYS[:1])),
    ]
    assert clones.release(first.id).state is CloneState.RELEASED
    assert clones.release(first.id).state is CloneState.RELEASED  # once more does no harm
    assert [held.clone_id for held in Clones(lake._context).iter_held()] == [second.id]
    assert [(clone.id, clone.is_held) for clone in clones.list()] == [(first.id, False), (second.id, True)]


@pytest.mark.parametrize("wrong", ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "../main", "a/b"])
def test_a_clone_that_nobody_registered_is_named(lake: ab.Repository, wrong: str) -> None:
    with pytest.raises(NotFoundError, match="no clone"):
        Clones(lake._context).release(wrong)
