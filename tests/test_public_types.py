"""Everything that a public method returns can be imported from `anabranch` or `anabranch.types`."""

import ast
import inspect
import subprocess
import sys
from typing import Any

import pytest
from scripts.reference import public

import anabranch as ab

HELD = [ab.Repository, ab.Transaction, ab.Run, ab.Snapshot, ab.Table]
EXPORTED = {id(getattr(module, name)) for module in (ab, ab.types) for name in dir(module)}


@pytest.mark.parametrize("each", HELD)
def test_everything_that_a_method_returns_is_exported(each: type) -> None:
    """Also what the returned values hold or return, and so on."""
    found = public.reachable([each])
    assert len(found) > 1
    assert [value for value in found if id(value) not in EXPORTED] == []


def test_every_public_method_declares_what_it_returns() -> None:
    for each in HELD:
        for name, member in public.public_members(each):
            function: Any = member.fget if isinstance(member, property) else member
            annotation = inspect.signature(function).return_annotation
            assert annotation is not inspect.Signature.empty, f"{each.__name__}.{name}"


def test_all_values_of_datasets_and_pipelines_are_exported() -> None:
    values = public.reachable([*public.public_classes(), *public.public_functions().values()])
    assert len(values) > 90
    assert [value for value in values if id(value) not in EXPORTED] == []


def test_names_of_types_are_sorted_and_importable() -> None:
    assert dir(ab.types) == ab.types.__all__
    for name in dir(ab.types):
        assert inspect.isclass(getattr(ab.types, name)), name
    assert not hasattr(ab.types, "NoSuchType")
    assert not {*dir(ab.types)} & {*ab.__all__}, "one place for each name"


def test_type_checkers_know_each_type() -> None:
    """A name that is only found by `__getattr__` is of the type Any for them."""
    tree = ast.parse(inspect.getsource(ab.types))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {each.name for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for each in node.names}
    assigned = {ast.unparse(node.targets[0]) for node in block.body if isinstance(node, ast.Assign)}
    assert {*dir(ab.types)} - imported - assigned == set()


def test_all_errors_are_importable_from_the_package() -> None:
    for name in ab.errors.__all__:
        assert getattr(ab, name) is getattr(ab.errors, name)
        assert name in ab.__all__
    assert issubclass(ab.BranchNotFoundError, ab.NotFoundError)


def test_importing_types_loads_nothing_heavy() -> None:
    heavy = {
        "google.protobuf",
        "lance",
        "pyarrow",
        "pandas",
        "polars",
        "obstore",
        "numpy",
        "pyspark",
        "duckdb",
        "rich",
        "typer",
    }
    code = f"import sys, anabranch.types, anabranch.errors; print(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_value_is_of_its_exported_type() -> None:
    annotation = inspect.signature(ab.Repository.branch_list).return_annotation
    assert [*public.classes_in(annotation, ab.Repository.__module__)] == [ab.types.Listing, ab.types.BranchInfo]
