"""Names and ids: every rule of the branch and tag specification, what we add to it, and how each refuses."""

import string
from datetime import UTC, datetime
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from anabranch.errors import InvalidNameError
from anabranch.ids import LAYOUT_NAMES, BranchName, CommitId, Ref, RefRange, Step, TableKey, TagName, are_table_keys

ONLY_ASCII = "use only ASCII letters, digits, '.', '-', '_', and '/' between segments"
ONLY_ASCII_TAG = "use only ASCII letters, digits, '.', '-' and '_'"

# Rule of the specification: what keeps it.
BRANCH_ACCEPTED = [
    ("1 not empty", "a"),
    ("1 not empty", "_"),
    ("2 no '/' at the ends", "feature/user-auth"),
    ("3 no '//'", "a/b/c/d"),
    ("4 no '..'", "v1.2.3"),
    ("4 no '..'", "a./.b"),
    ("5 letters, digits, '.', '-', '_'", "Az09.-_"),
    ("5 letters, digits, '.', '-', '_'", "-"),
    ("5 letters, digits, '.', '-', '_'", ".a"),
    ("6 no '.lock' at the end", "lock"),
    ("6 no '.lock' at the end", "a.lock.d"),
    ("6 no '.lock' at the end", "a.lock/b"),
    ("6 no '.lock' at the end", "a.Lock"),
    ("7 not 'main'", "Main"),
    ("7 not 'main'", "main2"),
    ("7 not 'main'", "x/main"),
]
# Rule of the specification, or of ours: what breaks it, what is reported, and what to do next.
BRANCH_REFUSED = [
    ("1 empty", "", "is empty", "use at least one character"),
    ("2 leading", "/a", "starts or ends with '/'", "use 'a'"),
    ("2 trailing", "a/b/", "starts or ends with '/'", "use 'a/b'"),
    ("2 only", "/", "starts or ends with '/'", "put '/' only between segments"),
    ("3 double", "a//b", "has an empty segment", "use 'a/b'"),
    ("3 triple", "a///b//c", "has an empty segment", "use 'a/b/c'"),
    ("3 no good name in sight", "a//b c", "has an empty segment", "use single slashes"),
    ("4 dots", "a..b", "contains '..'", "use single dots"),
    ("4 up", "a/../b", "contains '..'", "use single dots"),
    ("4 backslash", "a\\b", "contains a backslash", "use 'a/b'"),
    ("4 only a backslash", "\\", "contains a backslash", "remove it"),
    ("5 space", "my branch", "contains ' '", ONLY_ASCII),
    ("5 several", "a@{b}", "contains '@{}'", ONLY_ASCII),
    ("5 percent", "a%2Fb", "contains '%'", ONLY_ASCII),
    ("5 newline", "a\n", "contains '\\n'", ONLY_ASCII),
    ("5 NUL", "a\0b", "contains '\\x00'", ONLY_ASCII),
    ("5 later segment", "a/b/c*", "contains '*'", ONLY_ASCII),
    ("6 lock", "a.lock", "ends with '.lock'", "use another ending"),
    ("6 lock of a segment", "a/.lock", "ends with '.lock'", "use another ending"),
    ("ASCII Latin", "café", "contains 'é'", ONLY_ASCII),
    ("ASCII Cyrillic look-alike", "d\u0435v", "contains '\u0435'", ONLY_ASCII),
    ("ASCII Greek", "κλάδος", "contains", ONLY_ASCII),
    ("ASCII Chinese", "分支", "contains '分支'", ONLY_ASCII),
    ("ASCII Arabic digit", "v\u0661", "contains '\u0661'", ONLY_ASCII),
    ("ASCII full width", "\uff41", "contains '\uff41'", ONLY_ASCII),
    ("ASCII combining", "e\u0301", "contains", ONLY_ASCII),
    ("ASCII emoji", "🌿", "contains '🌿'", ONLY_ASCII),
    ("folder '.'", "a/./b", "has the segment '.', which means the folder itself", "remove it"),
    ("folder '.' alone", ".", "has the segment '.', which means the folder itself", "remove it"),
    ("layout", "data", "has the segment 'data', which is a folder of the Lance layout", "use 'data-1'"),
    ("layout below", "a/_versions", "has the segment '_versions', which is a folder", "use 'versions-1'"),
    ("layout between", "a/tree/b", "has the segment 'tree', which is a folder of the Lance layout", "use 'tree-1'"),
    ("length", "a" * 211, "has 211 characters", "use at most 210"),
    ("length as a file name", "/".join("a" * 50), "has 295 characters, counting each '/' as 5", "use at most 210"),
]
NEW_BRANCH_REFUSED = [
    ("7 main", "main", "is reserved for the main branch", "choose another name"),
    ("below main", "main/x", "starts with 'main/', which Lance treats as the dataset itself", "use 'main-x'"),
    ("below main", "main/x/y", "starts with 'main/', which Lance treats as the dataset itself", "use 'main-x-y'"),
    ("digits", "7", "is a number, which refs use for versions", "use 'v7'"),
    ("digits", "20261115", "is a number, which refs use for versions", "use 'v20261115'"),
    ("internal", "__run__01", "starts with '__', which is reserved", "drop the leading underscores"),
    ("length", "a" * 171, "has 171 characters", "use at most 170"),
]
TAG_ACCEPTED = [
    ("1 not empty", "1"),
    ("2 letters, digits, '.', '-', '_'", "Az09.-_z"),
    ("2 letters, digits, '.', '-', '_'", "-v-"),
    ("3 no '.' at the ends", "v1.0.0"),
    ("4 no '.lock' at the end", "a.lock.x"),
    ("4 no '.lock' at the end", "lock"),
    ("5 no '..'", "a.b.c"),
    ("layout names do no harm in a flat folder", "data"),
    ("main is a name like any other", "main"),
]
TAG_REFUSED = [
    ("1 empty", "", "is empty", "use at least one character"),
    ("2 space", "v 1", "contains ' '", ONLY_ASCII_TAG),
    ("2 backslash", "v\\1", "contains '\\\\'", ONLY_ASCII_TAG),
    ("2 folder", "release/1", "contains '/'", "use 'release-1': tags have no folders"),
    ("3 leading", ".v1", "starts or ends with '.'", "use another character at the start and the end"),
    ("3 trailing", "v1.", "starts or ends with '.'", "use another character at the start and the end"),
    ("4 lock", "v1.lock", "ends with '.lock'", "use another ending"),
    ("5 dots", "v1..0", "contains '..'", "use single dots"),
    ("ASCII Latin", "é", "contains 'é'", ONLY_ASCII_TAG),
    ("ASCII Chinese", "版本", "contains '本版'", ONLY_ASCII_TAG),
    ("length", "a" * 171, "has 171 characters", "use at most 170"),
]


@pytest.mark.parametrize(("rule", "text"), BRANCH_ACCEPTED)
def test_a_branch_name_that_keeps_the_rules_is_accepted(rule: str, text: str) -> None:
    assert str(BranchName.parse(text)) == text
    assert str(BranchName.parse_new(text)) == text


@pytest.mark.parametrize(("rule", "text", "problem", "hint"), BRANCH_REFUSED)
def test_a_branch_name_that_breaks_a_rule_is_refused_with_its_reason(
    rule: str, text: str, problem: str, hint: str
) -> None:
    for parse in (BranchName.parse, BranchName.parse_new):
        with pytest.raises(InvalidNameError) as refusal:
            parse(text)
        assert refusal.value.problem.startswith(f"branch name {text!r} {problem}")
        assert refusal.value.hint == hint


@pytest.mark.parametrize(("rule", "text", "problem", "hint"), NEW_BRANCH_REFUSED)
def test_some_branches_exist_that_no_caller_may_create(rule: str, text: str, problem: str, hint: str) -> None:
    assert str(BranchName.parse(text)) == text
    with pytest.raises(InvalidNameError) as refusal:
        BranchName.parse_new(text)
    assert refusal.value.problem.startswith(f"branch name {text!r} {problem}")
    assert refusal.value.hint == hint


@pytest.mark.parametrize("segment", sorted(LAYOUT_NAMES))
def test_no_folder_of_the_lance_layout_is_a_segment_of_a_branch(segment: str) -> None:
    for text in (segment, f"a/{segment}", f"{segment}/a"):
        with pytest.raises(InvalidNameError, match="a folder of the Lance layout"):
            BranchName.parse(text)
    assert BranchName.parse(f"{segment}x").value == f"{segment}x"


@given(st.text(st.sampled_from("ab./\\ é"), max_size=12))
@example("//")
@example("\\..")
@example("/data/")
def test_a_suggested_name_is_a_good_one(text: str) -> None:
    try:
        BranchName.parse(text)
    except InvalidNameError as refusal:
        if refusal.hint.startswith("use '"):
            BranchName.parse(refusal.hint.removeprefix("use ").strip("'"))


@pytest.mark.parametrize(("rule", "text"), TAG_ACCEPTED)
def test_a_tag_name_that_keeps_the_rules_is_accepted(rule: str, text: str) -> None:
    assert str(TagName.parse(text)) == text


@pytest.mark.parametrize("text", ["1", "007", "20261115"])
def test_tags_that_are_numbers_may_exist_but_not_be_created(text: str) -> None:
    assert str(TagName.parse(text)) == text
    with pytest.raises(InvalidNameError, match="is a number, which refs use for versions") as refusal:
        TagName.parse_new(text)
    assert refusal.value.hint == f"use 'v{text}'"


@pytest.mark.parametrize(("rule", "text", "problem", "hint"), TAG_REFUSED)
def test_a_tag_name_that_breaks_a_rule_is_refused_with_its_reason(
    rule: str, text: str, problem: str, hint: str
) -> None:
    with pytest.raises(InvalidNameError) as refusal:
        TagName.parse(text)
    assert refusal.value.problem.startswith(f"tag name {text!r} {problem}")
    assert refusal.value.hint == hint


LETTERS = st.sampled_from(string.ascii_letters + string.digits + "._-")
SEGMENTS = st.text(LETTERS, min_size=1, max_size=30)


@st.composite
def branch_names(draw: st.DrawFn) -> str:
    text = "/".join(draw(st.lists(SEGMENTS, min_size=1, max_size=8)))
    assume(is_accepted(BranchName.parse_new, text))
    return text


@st.composite
def tag_names(draw: st.DrawFn) -> str:
    text = draw(SEGMENTS)
    assume(is_accepted(TagName.parse, text))
    return text


def is_accepted(parse: object, text: str) -> bool:
    assert callable(parse)
    try:
        parse(text)
    except InvalidNameError:
        return False
    return True


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    return lance.write_dataset(pa.table({"id": [1]}), str(tmp_path_factory.mktemp("names") / "t.lance"))


@given(name=branch_names())
@example("a" * 170)
@example("/".join("a" * 29))
def test_lance_accepts_every_branch_name_that_we_accept(dataset: lance.LanceDataset, name: str) -> None:
    dataset.create_branch(name)
    try:
        assert name in dataset.branches.list()
        assert dataset.checkout_version((name, None)).count_rows() == 1
    finally:
        dataset.branches.delete(name)


@given(name=tag_names())
@example("a" * 170)
def test_lance_accepts_every_tag_name_that_we_accept(dataset: lance.LanceDataset, name: str) -> None:
    dataset.tags.create(name, 1)
    try:
        assert dataset.checkout_version(name).version == 1
    finally:
        dataset.tags.delete(name)


@pytest.mark.parametrize("text", [row[1] for row in BRANCH_REFUSED if row[0][0].isdigit()] + ["main"])
def test_lance_too_refuses_what_breaks_the_rules_for_branches(dataset: lance.LanceDataset, text: str) -> None:
    with pytest.raises((OSError, ValueError), match="Ref is invalid"):
        dataset.create_branch(text)


@pytest.mark.parametrize("text", [row[1] for row in TAG_REFUSED if row[0][0].isdigit()])
def test_lance_too_refuses_what_breaks_the_rules_for_tags(dataset: lance.LanceDataset, text: str) -> None:
    with pytest.raises((OSError, ValueError), match="Ref is invalid"):
        dataset.tags.create(text, 1)


@pytest.mark.parametrize("text", ["in_c_sales.orders", "a.b", "A-1._x", "1.2"])
def test_a_table_key_has_a_bucket_and_a_table(text: str) -> None:
    key = TableKey.parse(text)
    assert f"{key.bucket}.{key.table}" == str(key) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a.b.c", "does not have the form 'bucket.table'"),
        ("", "does not have the form 'bucket.table'"),
        (".orders", "has the invalid part ''"),
        ("sales.", "has the invalid part ''"),
        ("sales.-x", "has the invalid part '-x'"),
        ("sales.a/b", "has the invalid part 'a/b'"),
        ("sälés.a", "has the invalid part 'sälés'"),
        ("sales.a\n", "has the invalid part 'a\\n'"),
        ("sales." + "a" * 171, "has the invalid part 'aaa"),
    ],
)
def test_a_wrong_table_key_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidNameError) as refusal:
        TableKey.parse(text)
    assert refusal.value.problem.startswith(f"table name {text!r} {problem}")


def test_a_table_name_without_a_bucket_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidNameError, match=r"table name 'orders' has no bucket; write it like 'shop\.orders'"):
        TableKey.parse("orders")


KEY_LIKE = st.text(alphabet="ab-_.\n/é", max_size=6) | st.sampled_from(
    ["a.b", "in_c.x-1", "a" * 170 + ".b", "a." + "b" * 171]
)


@given(st.lists(KEY_LIKE | st.integers() | st.none(), max_size=5))
def test_table_keys_checked_together_are_those_that_are_right_one_by_one(names: list[object]) -> None:
    def is_key(name: object) -> bool:
        try:
            TableKey.parse(name)  # type: ignore[arg-type]
        except InvalidNameError:
            return False
        return True

    assert are_table_keys(names) == all(map(is_key, names))


ULIDS = st.builds(
    str.__add__,
    st.sampled_from("01234567"),
    st.text(st.sampled_from("0123456789ABCDEFGHJKMNPQRSTVWXYZ"), min_size=25, max_size=25),
)


@given(ULIDS)
def test_a_commit_id_is_a_ulid_in_either_case(text: str) -> None:
    assert CommitId.parse(text) == CommitId.parse(text.lower())
    assert str(CommitId.parse(text.lower())) == text


@pytest.mark.parametrize("text", ["", "01", "8" + "0" * 25, "0" * 25 + "U", "0" * 25 + "\u017f", "0" * 26 + "\n"])
def test_what_is_not_an_ulid_is_not_a_commit_id(text: str) -> None:
    with pytest.raises(InvalidNameError, match="is not a ULID") as refusal:
        CommitId.parse(text)
    assert repr(text) in refusal.value.problem


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("main", Ref("main")),
        ("feature/x", Ref("feature/x")),
        ("v1.0", Ref("v1.0")),
        ("data", Ref("data")),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", Ref("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
        ("01ARZ3", Ref("01ARZ3")),
        ("main~3", Ref("main", steps=(Step("~", 3),))),
        ("main~", Ref("main", steps=(Step("~", 1),))),
        ("main~0", Ref("main")),
        ("main^2", Ref("main", steps=(Step("^", 2),))),
        ("main^", Ref("main", steps=(Step("~", 1),))),
        ("main^1", Ref("main", steps=(Step("~", 1),))),
        ("main^0", Ref("main")),
        ("main~2^2~1", Ref("main", steps=(Step("~", 2), Step("^", 2), Step("~", 1)))),
        ("main@v7", Ref("main", version=7)),
        ("feature/x@v18446744073709551615", Ref("feature/x", version=2**64 - 1)),
        ("main@{2026-11-15T10:00:00Z}", Ref("main", at="2026-11-15T10:00:00Z")),
        ("main@{2026-11-15}", Ref("main", at="2026-11-15")),
    ],
)
def test_a_ref_is_read_in_each_of_its_forms(text: str, ref: Ref) -> None:
    assert Ref.parse(text) == ref


@given(
    st.one_of(
        st.builds(Ref, branch_names()),
        st.builds(Ref, tag_names()),
        st.builds(Ref, ULIDS),
        st.builds(
            Ref,
            branch_names(),
            steps=st.lists(st.builds(Step, st.just("~"), st.integers(1, 999_999_999)) | st.just(Step("^", 2))).map(
                tuple
            ),
        ),
        st.builds(Ref, branch_names(), version=st.integers(0, 2**64 - 1)),
        st.builds(Ref, branch_names(), at=st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)),
    )
)
def test_a_ref_reads_back_what_it_shows(ref: Ref) -> None:
    assert Ref.parse(str(ref)) == ref


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "ref '' is not valid"),
        ("main~x", "is not valid"),
        ("main~-1", "is not valid"),
        ("main~٣", "is not valid"),
        ("main@7", "is not valid"),
        ("main@v", "is not valid"),
        ("main@{}", "is not valid"),
        ("main^3", "ref 'main^3' names a parent that no commit has"),
        ("main^-1", "is not valid"),
        ("^2", "is not valid"),
        ("main~1@v2", "is not valid"),
        ("~3", "is not valid"),
        ("a//b~3", "ref 'a//b~3' contains the name 'a//b', which has an empty segment"),
        ("ветка", "which contains"),
        ("main@{yesterday}", "contains the invalid time 'yesterday'"),
        ("main@{2026-13-01}", "contains the invalid time '2026-13-01'"),
    ],
)
def test_a_wrong_ref_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidNameError) as refusal:
        Ref.parse(text)
    assert problem in refusal.value.problem
    assert refusal.value.hint


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("main..dev", RefRange("main", "dev")),
        ("main...dev", RefRange("main", "dev", is_since_base=True)),
        ("main~..", RefRange("main~1", None)),
        ("...feature/x", RefRange(None, "feature/x", is_since_base=True)),
        ("main@{2026-11-15}..v1.0", RefRange("main@{2026-11-15}", "v1.0")),
    ],
)
def test_a_range_is_two_refs(text: str, found: RefRange) -> None:
    assert RefRange.find(text) == found
    assert RefRange.find(str(found)) == found


def test_a_wrong_range_is_refused_with_its_reason() -> None:
    assert RefRange.find("main") is None
    wrong = {"..": "names no ref", "...": "names no ref", "a..b..c": "contains '..'", "a..~": "is not valid"}
    for text, problem in wrong.items():
        with pytest.raises(InvalidNameError) as refusal:
            RefRange.find(text)
        assert problem in refusal.value.problem


def test_names_sort_and_hash_as_their_text() -> None:
    names = [BranchName.parse(text) for text in ("b", "a/b", "a")]
    assert [str(name) for name in sorted(names)] == ["a", "a/b", "b"]
    assert len({BranchName.parse("a"), BranchName.parse("a")}) == 1


def test_the_longest_names_still_fit_on_disk_with_a_home_below_them(dataset: lance.LanceDataset) -> None:
    home = BranchName.parse("b" * 170 + "/01ARZ3NDEKTSV4RRFFQ69G5FAV")
    for name in (home, BranchName.parse("b" * 210)):
        dataset.create_branch(name.value)
        assert name.value in dataset.branches.list()
        dataset.branches.delete(name.value)


def test_a_leftover_name_on_disk_is_read_although_no_caller_may_create_it(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "t.lance"))
    dataset.create_branch("__run__01")
    (found,) = dataset.branches.list()
    assert BranchName.parse(found).is_internal
