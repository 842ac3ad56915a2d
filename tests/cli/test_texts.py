"""Tables as people see them, in a pipe and on a narrow terminal."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.texts import Table, iter_lines

ID = "01M7GMZB03Y0YAE5N3J2R7K9QX"
NOW = datetime(2026, 11, 15, 10, 2, 3, tzinfo=UTC)


def lines(table: Table, width: int | None = None) -> list[str]:
    return list(iter_lines(table, width=width))


def test_numbers_are_aligned_to_the_right_with_separators() -> None:
    table = Table(columns=("table", "rows", "note"), rows=(("a", 1_234_567, None), ("long.name", 5, "x")))
    assert lines(table) == [
        "table            rows   note",
        "────────────────────────────",
        "a           1,234,567   -",
        "long.name           5   x",
    ]


def test_a_pipe_gets_no_trailing_blanks() -> None:
    table = Table(columns=("", ""), rows=(("branch", "main"), ("created", NOW), ("rows", 3000)))
    assert lines(table) == ["branch    main", "created   2026-11-15 10:02:03", "rows      3,000"]


def test_text_wraps_and_ids_and_times_stay_whole() -> None:
    row = (ID, NOW, "a message with several words", "in_c_sales.orders, in_c_sales.customers")
    shown = lines(Table(columns=("commit", "time (UTC)", "message", "tables"), rows=(row,)), 80)
    assert max(map(len, shown)) <= 80
    assert any(line.startswith(f"{ID}  2026-11-15 10:02:03  ") for line in shown)
    joined = " ".join(" ".join(shown).split())
    assert all(word in joined for word in ("message", "several", "words"))


def test_a_broken_word_keeps_the_blank_before_it() -> None:
    row = ("tea", "see s3://bucket/path/name.json")
    shown = lines(Table(columns=("item", "note"), rows=(row,)), 20)
    assert shown[2:] == ["tea   see s3://", "      bucket/path/", "      name.json"]


def test_rows_that_do_not_fit_become_blocks() -> None:
    row = (ID, ID, ID, "main")
    shown = lines(Table(columns=("run", "commit", "parent", "branch"), rows=(row, row)), 40)
    block = [f"run     {ID}", f"commit  {ID}", f"parent  {ID}", "branch  main"]
    assert shown == [*block, "", *block]


WORDS = st.lists(st.sampled_from([ID, "tea", "in_c_sales.orders", "表", "x" * 70, "s3://b/c", "é"]), max_size=6)


@given(st.lists(st.tuples(WORDS, WORDS, st.integers()), min_size=1, max_size=4), st.integers(60, 120))
def test_every_table_fits_and_loses_nothing(rows: list[tuple[list[str], list[str], int]], width: int) -> None:
    cells = tuple((" ".join(first), " ".join(second), number % 10**6) for first, second, number in rows)
    shown = lines(Table(columns=("first", "second", "n"), rows=cells), width)
    assert max(len(line) + line.count("表") for line in shown) <= width
    assert sum(line.count(ID) for line in shown) == sum(row[:2][at].split().count(ID) for row in cells for at in (0, 1))
    characters = sorted("".join(f"{first}{second}" for first, second, _ in cells).replace(" ", ""))
    left = sorted("".join(shown[2:]).replace(" ", ""))
    for character in set(characters) - set("0123456789,firstecodn─"):
        assert left.count(character) >= characters.count(character)
