"""One spelling for each location."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidPathError
from anabranch.storage.uris import is_local, join_uri, normalise_uri, relative_to, split_uri

HERE = os.getcwd()


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("lake", f"{HERE}/lake"),
        ("./lake/", f"{HERE}/lake"),
        (".", HERE),
        ("/data/lake", "/data/lake"),
        ("/data//lake/./x/../", "/data/lake"),
        ("//data/lake", "/data/lake"),
        ("/", "/"),
        ("/a b/#c/%41/ü", "/a b/#c/%41/ü"),
        ("C", f"{HERE}/C"),
        ("file:///data/lake/", "/data/lake"),
        ("file://localhost/data", "/data"),
        ("FILE:///a%20b", "/a b"),
        ("file:///a#b", "/a#b"),
        (Path("/data/lake"), "/data/lake"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://Bucket/A", "s3://Bucket/A"),
        ("s3://bucket//a/", "s3://bucket/a"),
        ("s3://bucket/a//b///c", "s3://bucket/a/b/c"),
        ("s3://bucket/a b/ü@home", "s3://bucket/a b/ü@home"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a/", "az://container/a"),
    ],
)
def test_a_location_has_one_spelling(text: str | Path, uri: str) -> None:
    assert normalise_uri(text) == uri
    assert normalise_uri(uri) == uri


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "path '' is empty or contains a NUL"),
        ("  ", "path '  ' is empty or contains a NUL"),
        ("a\0b", "path 'a\\x00b' is empty or contains a NUL"),
        ("file:///a%00b", "is empty or contains a NUL"),
        ("/lakes/what?/x", "path '/lakes/what?/x' contains '?'"),
        ("file:///a%3Fb", "path '/a?b' contains '?'"),
        ("file://server/share", "path 'file://server/share' names a host"),
        ("file://", "names a host"),
        ("memory://x", "path 'memory://x' has the unsupported scheme 'memory'"),
        ("http://host/x", "path 'http://host/x' has the unsupported scheme 'http'"),
        ("s3a://bucket/x", "path 's3a://bucket/x' has the unsupported scheme 's3a'"),
        ("s3://", "path 's3://' has no bucket"),
        ("s3:///a", "path 's3:///a' has no bucket"),
        ("s3://buc ket/a", "path 's3://buc ket/a' has no bucket, or an invalid one"),
        ("s3://bucket/a?versionId=3", "path 's3://bucket/a' contains '?'"),
        ("s3://bucket/a#b", "path 's3://bucket/a#b' contains '#'"),
        ("s3://bucket/a%20b", "path 's3://bucket/a%20b' contains '%'"),
        ("s3://bucket/a/../b", "path 's3://bucket/a/../b' contains '.' or '..'"),
        ("gs://bucket/./b", "path 'gs://bucket/./b' contains '.' or '..'"),
    ],
)
def test_what_no_store_serves_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidPathError) as refusal:
        normalise_uri(text)
    assert problem in refusal.value.problem
    assert refusal.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "s3://ada:lovelace@bucket/x",
        "s3://ada:love@lace@bucket/x",
        "s3://ada:love/lovelace@bucket/x",
        "s3://lovelace@bucket",
        "http://ada:lovelace@host/x",
        "http://ada:love@lovelace@host/x",
        "file://ada:lovelace@host/x",
        "s3://bucket/x?X-Amz-Signature=lovelace",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidPathError) as refusal:
        normalise_uri(text)
    assert "love" not in str(refusal.value)
    assert "lace" not in str(refusal.value)


SEGMENTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0?#%@"), min_size=1, max_size=8)
PATHS = st.lists(SEGMENTS.filter(lambda segment: segment not in {".", ".."}), max_size=5)


@given(st.sampled_from(["/data", "s3://bucket", "gs://b", "az://c"]), PATHS)
def test_a_joined_location_is_found_below_its_root(root: str, parts: list[str]) -> None:
    uri = join_uri(root, *parts)
    assert normalise_uri(uri + "/") == uri
    assert relative_to(uri, root) == "/".join(parts)
    assert relative_to(root, uri) == ("" if not parts else None)
    assert is_local(uri) is root.startswith("/")


def test_a_neighbour_with_the_same_beginning_is_not_below() -> None:
    assert relative_to("s3://bucket/lake2/x", "s3://bucket/lake") is None
    assert relative_to("/lake/x", "/") == "lake/x"


def test_a_remote_uri_has_three_parts() -> None:
    assert split_uri("s3://bucket/a/b") == ("s3", "bucket", "a/b")
    assert split_uri("gs://bucket") == ("gs", "bucket", "")
