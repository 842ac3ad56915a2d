"""What `import anabranch` offers."""

import subprocess
import sys

import anabranch


def test_the_public_names_are_sorted_and_all_there() -> None:
    assert sorted(anabranch.__all__) == anabranch.__all__
    for name in anabranch.__all__:
        assert getattr(anabranch, name) is not None
        assert name in dir(anabranch)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(anabranch, "no_such_name")


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = {"google.protobuf", "lance", "pyarrow", "obstore", "numpy", "pyspark", "duckdb", "rich", "typer"}
    code = f"import sys, anabranch; print(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
