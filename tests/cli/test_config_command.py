"""`anabranch config`."""

from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.conftest import Run


def test_settings_of_the_folder_override_those_of_the_user(run: Run, lake: ab.Repository, folder: Path) -> None:
    assert run("config").out == "no settings\n"
    assert run("config", "set", "actor", "ada", "--user").code == 0
    run("tag", "create", "first")
    run("config", "set", "actor", "bob")
    (folder / "below").mkdir()
    assert run("config", "get", "actor").out == "bob\n"
    run("tag", "create", "second")
    run("tag", "create", "third", "--actor", "eve")
    assert [lake.tag_get(name).created_by for name in ("first", "second", "third")] == ["ada", "bob", "eve"]
    listed = run("config", "list", "--json").document["settings"]
    assert (listed["actor"]["value"], listed["actor"]["source"]) == ("bob", "folder")
    run("config", "unset", "actor")
    assert run("config", "get", "actor", "--json").document["source"] == "user"


def test_the_repository_of_the_user_is_the_default(
    run: Run, lake: ab.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("config", "set", "repository", lake.uri, "--user")
    monkeypatch.chdir("/")
    assert run("status", "--json").document["repository"] == lake.uri


def test_storage_options_are_settings(run: Run, folder: Path) -> None:
    run("config", "set", "storage.client_max_retries", "0")
    run("config", "set", "storage.aws_endpoint", "http://127.0.0.1:9")
    run("config", "set", "storage.allow_http", "true")
    answer = run(
        "dataset", "layout", "s3://lake/t.lance", "-o", "aws_region=us-east-1", "-o", "aws_skip_signature=true"
    )
    assert (answer.code, "127.0.0.1:9" in answer.err) == (6, True)
    assert (folder / ".anabranch.config.json").is_file()


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["set", "colour", "red"], "there is no setting 'colour'"),
        (["set", "repository", "x"], "the repository of a folder is set by 'anabranch switch'"),
        (["set", "storage.aws_secret_access_key", "x"], "'storage.aws_secret_access_key' may be a secret"),
        (["unset", "actor"], "'actor' is not set in "),
        (["get", "actor"], "'actor' is not set"),
    ],
)
def test_what_cannot_be_set(run: Run, folder: Path, args: list[str], problem: str) -> None:
    answer = run("config", *args)
    assert answer.code in {2, 3}
    assert answer.err.startswith(f"error: {problem}")
    assert list(folder.iterdir()) == []


def test_a_damaged_file_is_named(run: Run, folder: Path) -> None:
    (folder / ".anabranch.config.json").write_text("{")
    answer = run("config")
    assert answer.code == 7
    assert ".anabranch.config.json' is not JSON" in answer.err
