"""The story of `make demo`, with fewer orders."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import anabranch as ab
from anabranch.config import ACTOR_VARIABLE, BRANCH_VARIABLE, REPOSITORY_VARIABLE

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for variable in (REPOSITORY_VARIABLE, BRANCH_VARIABLE, ACTOR_VARIABLE, "ANABRANCH_STORAGE_OPTIONS"):
        monkeypatch.delenv(variable, raising=False)
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by its name.
    monkeypatch.setitem(__import__("sys").modules, "demo", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.spark
@pytest.mark.proof
def test_the_story_is_shown_to_its_end(demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.tell(tmp_path / "lake", orders=2_000)
    printed = capsys.readouterr().out
    assert re.findall(r"^(\d+)\. ", printed, re.MULTILINE) == [str(n) for n in range(1, len(demo.STEPS) + 1)]
    typed = [line.strip() for line in printed.splitlines() if line.startswith(("    $ ", "    >>> "))]
    assert len(re.findall(r"^    \(\d+\.\d s\)$", printed, re.MULTILINE)) >= len(demo.STEPS)
    assert "$ anabranch merge sale --resolve price=max" in typed

    repo = ab.open(tmp_path / "lake" / "lake")
    assert [branch.name for branch in repo.branch_list()] == ["main", "preview", "sale"]
    tables = repo.snapshot()
    assert {"gold.customer_value", "gold.daily_revenue", "gold.product_ranking"} < set(tables)
    assert tables["bronze.orders"].count_rows() == 2_040
    assert tables["gold.daily_revenue"].count_rows() > 0
    tea = repo.entity_at("shop.products", 1)
    assert tea is not None
    assert str(tea["price"]) == "13.50"
    assert demo.choose_folder(tmp_path / "lake") == tmp_path / "lake"
    assert not (tmp_path / "lake").exists(), "the next demo replaces it"


def test_folder_that_the_demo_did_not_make_is_kept(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, second = tmp_path / "demo-lake", tmp_path / "demo-lake-2"
    assert demo.choose_folder(wanted) == wanted
    assert capsys.readouterr().out == ""
    wanted.mkdir()
    assert demo.choose_folder(wanted) == wanted, "it is empty"
    (wanted / "notes.txt").write_text("of the user")
    assert demo.choose_folder(wanted) == second
    assert capsys.readouterr().out == f"Kept {wanted}: this demo did not make it.\n"
    second.mkdir()
    (second / demo.MARK).touch()
    assert demo.choose_folder(wanted) == second
    assert f"Removed {second}, which this demo made before.\n" in capsys.readouterr().out
    assert ([path.name for path in wanted.iterdir()], second.exists()) == (["notes.txt"], False)
