"""The examples in docstrings are run, each on a fresh lake: `repo`, with one table of three orders."""

import doctest
import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from scripts import reference

import anabranch as ab

ORDERS = {"id": [1, 2, 3], "item": ["tea", "cup", "pot"], "amount": [12.5, 8.0, 40.0]}


def _documented() -> dict[str, Any]:
    functions = reference.public_functions()
    classes = reference.reachable([*reference.public_classes(), *functions.values()])
    members = {f"{each.__name__}.{name}": value for each in classes for name, value in reference.public_members(each)}
    return {name: value for name, value in {**functions, **members}.items() if ">>>" in (value.__doc__ or "")}


EXAMPLES = _documented()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    repo = ab.init("shop", actor="ada")
    table = pa.table(ORDERS)
    with repo.transaction(message="Load the shop") as tx:
        tx.create_table("shop.orders", table.schema, primary_key=["id"])
        tx.append("shop.orders", table)
    text = inspect.cleandoc(EXAMPLES[name].__doc__)
    example = doctest.DocTestParser().get_doctest(text, {"ab": ab, "pa": pa, "repo": repo}, name, None, 0)
    told: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(example, out=told.append).failed == 0, "".join(told)


def test_the_main_entry_points_have_examples() -> None:
    wanted = {"ab.init", "ab.open", "ab.clone", "ab.dataset", "Repository.transaction", "Repository.branch_create"}
    wanted |= {f"Repository.{name}" for name in ("diff", "branch_merge", "conflicts", "sql", "gc", "entity_at", "undo")}
    wanted |= {"Repository.tag_create", "Repository.begin_run", "Repository.list_commits", "Repository.snapshot_of"}
    assert wanted <= set(EXAMPLES)
