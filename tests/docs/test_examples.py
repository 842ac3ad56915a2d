"""The examples in docstrings are run, each on a fresh lake: `repo`, with one table of three orders."""

import doctest
import inspect
from typing import Any

import pyarrow as pa
import pytest
from scripts.reference import public

import anabranch as ab


def _documented() -> dict[str, Any]:
    functions = public.public_functions()
    classes = public.reachable([*public.public_classes(), *functions.values()])
    members = {f"{each.__name__}.{name}": value for each in classes for name, value in public.public_members(each)}
    return {name: value for name, value in {**functions, **members}.items() if ">>>" in (value.__doc__ or "")}


EXAMPLES = _documented()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_does_what_its_text_describes(name: str, shop: ab.Repository) -> None:
    text = inspect.cleandoc(EXAMPLES[name].__doc__)
    example = doctest.DocTestParser().get_doctest(text, {"ab": ab, "pa": pa, "repo": shop}, name, None, 0)
    reported: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(example, out=reported.append).failed == 0, "".join(reported)


def test_the_main_entry_points_have_examples() -> None:
    wanted = {"ab.init", "ab.open", "ab.clone", "ab.dataset", "Repository.transaction", "Repository.branch_create"}
    wanted |= {f"Repository.{name}" for name in ("diff", "merge", "conflicts", "sql", "gc", "entity_at", "undo")}
    wanted |= {"Repository.tag_create", "Repository.begin_run", "Repository.list_commits", "Repository.snapshot_of"}
    assert wanted <= set(EXAMPLES)
