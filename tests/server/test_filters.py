"""Filters come from untrusted clients: what they may contain, and what would harm the service."""

import subprocess
import sys

import pytest

from anabranch.errors import InvalidExpressionError
from anabranch.server.client_values import checked_filter
from tests.server.conftest import Project, ok, refused


@pytest.mark.parametrize(
    "text",
    [
        "id = 1",
        "v = 'it''s (not) a call; repeat(9) ? $1'",
        "id IN (1, 2, 3) AND NOT (v IS NULL OR v LIKE 'a%')",
        "lower(v) = 'x' OR starts_with(v, 'a')",
        "CAST(v AS VARCHAR) = 'x' AND CAST(id AS DECIMAL(10, 2)) > 1",
        "id BETWEEN 1 AND (2)",
        f"id IN ({', '.join(map(str, range(2000)))})",
        f"v IN ({', '.join(repr(str(number)) for number in range(1000))})",
        " OR ".join(f"id = {number}" for number in range(140)),
        "`odd name` = 1",
    ],
)
def test_common_filters_are_accepted(text: str) -> None:
    assert checked_filter(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "repeat(v, 1000000000) = 'x'",
        "id = 1 AND \"repeat\" (v, 1000000000) = 'x'",
        "`lpad`(v, 1000000000) = 'x'",
        "/* abs( */ rpad(v, 1000000000) = 'x'",
        "abs(length(replace(v, 'a', 'aa'))) > 1",
        "count(*) > 1",
        "read_csv('/etc/passwd') IS NULL",
        "id = ?",
        "id = $1",
        "id = 1; DROP TABLE x",
        "+".join(["id"] * 1000) + " = 1",
        "id" + "::int" * 900 + " = 1",
        "v" + " IS NULL" * 900,
        "v" + " || v" * 900 + " = 'x'",
        "NOT " * 1000 + "true",
        "(" * 1000 + "true" + ")" * 1000,
        "- " * 1000 + "1 = 1",
        "\"a'b\" = repeat(v, 9) OR 'x' = v",
        "`a'b` = repeat(v, 9) OR 'x' = v",
        "v = '--' OR repeat(v, 9) = v",
        "v = '/*' OR repeat(v, 9) = '*/'",
        "v" + ".v" * 1000 + " = 1",
        "v" + "[0]" * 1000 + " = 1",
        "v" + " COLLATE x" * 1000 + " = 1",
    ],
)
def test_what_would_harm_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpressionError):
        checked_filter(text)


@pytest.mark.proof
def test_lance_ends_the_process_over_deep_expressions() -> None:
    """Why operations are counted: this is not an error that could be caught."""
    code = """
import lance, pyarrow, tempfile
dataset = lance.write_dataset(pyarrow.table({"id": [1]}), tempfile.mkdtemp())
dataset.count_rows("+".join(["id"] * 4000) + " = 1")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode < 0


@pytest.mark.parametrize(
    "text",
    ["repeat(v, 9) = 'x'", "id / 0 = 1", "CAST(v AS INT) = 1", "regexp_match(v, '(') IS NOT NULL", "v = nothing", "id"],
)
def test_a_filter_that_fails_is_a_wrong_request(shared: Project, text: str) -> None:
    branch = shared.branch()
    for answer in (
        shared.client.get(f"{shared.table(branch)}/preview", params={"where": text}),
        shared.client.get(f"{shared.table(branch)}/preview", params={"where": text, "sort": "id"}),
        shared.client.delete(f"{shared.table(branch)}/rows", params={"where": text}),
    ):
        message = refused(answer, 400, "invalid_expression")["message"]
        assert "/project_" not in message
    assert ok(shared.client.get(shared.on(branch)))["tables"] == []


def test_longest_accepted_filter_works(shared: Project) -> None:
    text = "+".join(["id"] * 299) + " > 0"
    assert shared.preview(where=text, count=True)["total_row_count"] == 3


def test_a_name_in_double_quotes_is_a_column(shared: Project) -> None:
    branch = shared.branch()
    table = shared.table(branch)
    assert [row["id"] for row in shared.preview(branch, where="\"v\" <> 'v2'")["rows"]] == [1, 3]
    exported = ok(shared.client.post(f"{table}/export", json={"where": "\"v\" <> 'v2'"}))
    assert exported["rows"] == 2
    for answer in (
        shared.client.get(f"{table}/preview", params={"where": '"nope" IS NOT NULL'}),
        shared.client.delete(f"{table}/rows", params={"where": '"nope" IS NOT NULL'}),
        shared.client.delete(f"{table}/rows", params={"where": 'v <> "abc"'}),
    ):
        assert "there is no column" in refused(answer, 400, "invalid_expression")["message"]
    assert ok(shared.client.delete(f"{table}/rows", params={"where": "\"v\" <> 'v2'"}))["rows"] == 2
    assert [row["id"] for row in shared.preview(branch)["rows"]] == [2]
