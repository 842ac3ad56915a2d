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


# Those without an example. Some need Spark, another Lance tool or a moved lake. Shorten the list; do not extend it.
WITHOUT = {
    "ab.relocate",
    "ab.spark_session",
    "ab.tables",
    "Repository.adopt",
}


def test_functions_that_users_meet_first_have_examples() -> None:
    functions = dict(public.public_functions())
    for each in (ab.Repository, ab.Transaction, ab.Table, ab.Snapshot, ab.Run):
        members = public.public_members(each)
        functions |= {f"{each.__name__}.{name}": value for name, value in members if inspect.isfunction(value)}
    assert len(functions) > 100
    assert {name for name in functions if name not in EXAMPLES} == WITHOUT
