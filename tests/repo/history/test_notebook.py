"""Graphs and differences in a notebook: the same as in the web UI, with its style."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.repo.history.commit_graph import draw_commits
from tests.server.ui.lakes import HOSTILE, RIGHT_TO_LEFT, hostile_lake, shop

TAGS = {"bdi", "caption", "circle", "del", "div", "ins", "p", "path", "span", "style", "svg"} | {
    "table", "tbody", "td", "th", "thead", "time", "tr"
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ab.Repository:
    return shop(tmp_path_factory.mktemp("lake") / "shop")


def shown(value: object) -> str:
    html: str = value._repr_html_()  # type: ignore[attr-defined]
    assert set(re.findall(r"<(\w+)", html)) <= TAGS
    assert html.startswith('<div class="anabranch"')
    return html


def test_graph_shows_commits_with_their_branches_and_tags(lake: ab.Repository) -> None:
    graph = lake.graph()
    html = shown(graph)
    assert html.count("<svg") == len(graph) == 8
    assert '<span class="pill branch"><bdi>dev</bdi></span>' in html
    assert '<span class="pill tag"><bdi>v1.0</bdi></span>' in html
    assert "Merge fix" in repr(graph)
    assert [one.message for one in lake.graph("dev", limit=1)] == ["Sell jugs"]


def test_pages_of_a_graph_continue_each_other(lake: ab.Repository) -> None:
    whole, first, second = lake.graph(), lake.graph(limit=3), lake.graph(limit=None, offset=3)
    assert (whole.has_more, first.has_more, second.has_more) == (False, True, False)
    assert (*first.commits, *second.commits) == whole.commits
    assert first.rows[-1].below == second.rows[0].above


def test_graph_of_a_table_or_an_actor_has_only_their_commits(lake: ab.Repository) -> None:
    assert [one.message for one in lake.graph(table="shop.customers")] == ["Load the shop"]
    assert len(lake.graph(actor="nobody")) == 0
    assert "No commits." in shown(lake.graph(actor="nobody"))


def test_diff_shows_counts_and_changed_cells(lake: ab.Repository) -> None:
    diff = lake.diff("main...dev")
    assert '<span class="mark-added">+1</span>' in shown(diff)
    rows = shown(diff.tables[0])
    assert "\u2212 <bdi>8.0</bdi></del>" in rows
    assert "+ <bdi>9.5</bdi></ins>" in rows
    assert '<tr class="added">' in rows


def test_large_difference_is_not_read_to_print_it(lake: ab.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.repo.history.diff_drawing._MOST_COMPARED", 1)
    monkeypatch.setattr("anabranch.repo.history.diff_drawing._MOST_COUNTED", 1)
    diff = lake.diff("main...dev")
    assert "not counted" in shown(diff)
    assert "rows of shop.orders must be compared" in shown(diff.tables[0])


def test_hostile_texts_are_escaped(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path / "lake")
    for value in (lake.graph(), lake.diff("main...dev"), lake.diff("main...dev").tables[0]):
        html = shown(value)
        assert HOSTILE not in html
        assert RIGHT_TO_LEFT not in html
        assert len(html) < 100_000


def test_graph_of_many_branches_stays_small(lake: ab.Repository) -> None:
    commit = lake.snapshot().commit
    commits = [
        replace(commit, graph_commit_id=f"{number}", parent_commit_id="old", created_at=-number)
        for number in range(1000)
    ]
    graph = draw_commits(commits, branches=(), tags=(), offset=900, limit=100, is_filtered=False)
    assert len(graph) == 100
    assert len(graph.to_html()) < 150_000
