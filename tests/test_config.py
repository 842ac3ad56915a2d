"""Which repository, branch and actor a command works with."""

import getpass
import json
from pathlib import Path

import pytest

from anabranch.config import (
    MEMORY_FILE,
    Source,
    find_memory,
    load_settings,
    new_repository_settings,
    overriding_variables,
    remember,
)
from anabranch.errors import (
    DamagedFileError,
    InvalidPathError,
    RepositoryNotFoundError,
    StorageError,
    UnsupportedFormatError,
)

OTHER = "s3://bucket/lake"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that remembers branch dev of the repository `lake` in it."""
    remember(repository=str(tmp_path / "lake"), branch="dev", folder=tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("option", "environment", "chosen"),
    [
        (OTHER, {"ANABRANCH_REPO": "/env"}, (OTHER, Source.OPTION)),
        (None, {"ANABRANCH_REPO": "/env"}, ("/env", Source.ENVIRONMENT)),
        (None, {"ANABRANCH_REPO": ""}, ("{folder}/lake", Source.FOLDER)),
    ],
)
def test_the_repository_is_an_option_before_a_variable_before_the_memory(
    folder: Path, option: str | None, environment: dict[str, str], chosen: tuple[str, Source]
) -> None:
    found = load_settings(repository=option, environment=environment, folder=folder)
    assert (found.repository, found.repository_source) == (chosen[0].replace("{folder}", str(folder)), chosen[1])


@pytest.mark.parametrize(
    ("repository", "branch", "environment", "chosen"),
    [
        (None, "fix", {"ANABRANCH_BRANCH": "env"}, ("fix", Source.OPTION)),
        (None, None, {"ANABRANCH_BRANCH": "env"}, ("env", Source.ENVIRONMENT)),
        (None, None, {}, ("dev", Source.FOLDER)),
        ("{folder}/x/../lake/", None, {}, ("dev", Source.FOLDER)),
        (OTHER, None, {}, ("main", Source.DEFAULT)),
        (None, None, {"ANABRANCH_REPO": OTHER}, ("main", Source.DEFAULT)),
        (OTHER, None, {"ANABRANCH_BRANCH": "env"}, ("env", Source.ENVIRONMENT)),
    ],
)
def test_the_remembered_branch_belongs_to_the_remembered_repository(
    folder: Path, repository: str | None, branch: str | None, environment: dict[str, str], chosen: tuple[str, Source]
) -> None:
    uri = None if repository is None else repository.replace("{folder}", str(folder))
    found = load_settings(repository=uri, branch=branch, environment=environment, folder=folder)
    assert (found.branch, found.branch_source) == chosen


def test_an_empty_option_is_not_taken_for_a_missing_one(folder: Path) -> None:
    with pytest.raises(InvalidPathError, match="empty"):
        load_settings(repository="", environment={}, folder=folder)
    with pytest.raises(InvalidPathError, match="empty"):
        new_repository_settings("", environment={})
    assert load_settings(branch="", environment={}, folder=folder).branch == ""


def test_the_actor_is_an_option_before_a_variable_before_the_user(folder: Path) -> None:
    environment = {"ANABRANCH_ACTOR": "env"}
    assert load_settings(actor="ada", environment=environment, folder=folder).actor == "ada"
    assert load_settings(environment=environment, folder=folder).actor == "env"
    assert load_settings(environment={}, folder=folder).actor == getpass.getuser()


def test_without_any_source_the_error_shows_all_ways(tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError) as caught:
        load_settings(environment={}, folder=tmp_path)
    assert str(tmp_path) in caught.value.problem
    for way in ("anabranch init", "--repo", "ANABRANCH_REPO"):
        assert way in caught.value.hint


def test_the_nearest_memory_above_is_found(folder: Path) -> None:
    deep = folder / "a" / "b"
    deep.mkdir(parents=True)
    found = find_memory(deep)
    assert found is not None
    assert (found.file, found.repository, found.branch) == (folder / MEMORY_FILE, str(folder / "lake"), "dev")
    remember(repository=OTHER, branch="main", folder=folder / "a")
    nearer = find_memory(deep)
    assert nearer is not None
    assert nearer.repository == OTHER


def test_branch_is_remembered_inside_a_repository_that_was_named_by_a_link(tmp_path: Path) -> None:
    lake, link = tmp_path / "lake", tmp_path / "link"
    lake.mkdir()
    (lake / "_repo.json").touch()
    link.symlink_to(lake)
    remember(repository=str(link), branch="dev", folder=tmp_path)
    found = find_memory(lake)
    assert found is not None
    assert found.branch == "dev"


def test_a_folder_moves_together_with_the_repository_in_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    moved = folder.rename(tmp_path_factory.mktemp("new") / "uri")
    found = find_memory(moved)
    assert found is not None
    assert found.repository == str(moved / "lake")


@pytest.mark.parametrize(
    ("repository", "stored"),
    [("{folder}", "."), ("{folder}/a/lake", "a/lake"), ("/elsewhere/lake", "/elsewhere/lake"), (OTHER, OTHER)],
)
def test_a_memory_holds_three_fields_and_nothing_else(tmp_path: Path, repository: str, stored: str) -> None:
    uri = repository.replace("{folder}", str(tmp_path))
    memory = remember(repository=uri, branch="dev", folder=tmp_path)
    assert json.loads(memory.file.read_text()) == {"format": 1, "repository": stored, "branch": "dev"}
    assert find_memory(tmp_path) == memory
    assert [path.name for path in tmp_path.iterdir()] == [MEMORY_FILE]


def test_a_memory_of_the_same_repository_is_changed_where_it_is(folder: Path) -> None:
    deep = folder / "a"
    deep.mkdir()
    before = find_memory(deep)
    assert before is not None
    assert remember(repository=before.repository, branch="fix", memory=before, folder=deep).file == before.file
    assert remember(repository=OTHER, branch="fix", memory=before, folder=deep).file == deep / MEMORY_FILE
    kept = find_memory(folder)
    assert kept is not None
    assert (kept.repository, kept.branch) == (before.repository, "fix")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"repository": "x", "branch": "y"}',
        b'{"format": "1", "repository": "x", "branch": "y"}',
        b'{"format": 1, "repository": "", "branch": "y"}',
        b'{"format": 1, "repository": "x", "branch": 7}',
    ],
)
def test_a_damaged_memory_is_named_with_the_way_out(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / MEMORY_FILE
    file.write_bytes(content)
    with pytest.raises(DamagedFileError) as caught:
        find_memory(tmp_path)
    assert str(file) in caught.value.problem
    assert "delete it" in caught.value.hint


def test_a_memory_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / MEMORY_FILE).write_text('{"format": 2}')
    with pytest.raises(UnsupportedFormatError, match="format 2"):
        find_memory(tmp_path)


def test_a_memory_that_cannot_be_read_or_written_is_an_error_of_storage(tmp_path: Path) -> None:
    (tmp_path / MEMORY_FILE).mkdir()
    with pytest.raises(StorageError, match="cannot be read"):
        find_memory(tmp_path)
    with pytest.raises(StorageError, match="cannot be written"):
        remember(repository=OTHER, branch="main", folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [MEMORY_FILE]


def test_a_new_repository_is_made_where_given_else_by_the_variable_else_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    environment = {"ANABRANCH_REPO": OTHER}
    assert new_repository_settings("x", environment=environment).repository == str(folder / "x")
    assert new_repository_settings(None, environment=environment).repository == OTHER
    assert new_repository_settings(None, environment={}).repository == str(folder)


@pytest.mark.parametrize(
    ("environment", "variables"),
    [
        ({}, []),
        ({"ANABRANCH_REPO": "{folder}/lake/", "ANABRANCH_BRANCH": "dev"}, []),
        ({"ANABRANCH_REPO": OTHER}, ["ANABRANCH_REPO"]),
        ({"ANABRANCH_REPO": OTHER, "ANABRANCH_BRANCH": "main"}, ["ANABRANCH_REPO", "ANABRANCH_BRANCH"]),
    ],
)
def test_variables_that_win_over_the_memory_are_known(
    folder: Path, environment: dict[str, str], variables: list[str]
) -> None:
    memory = find_memory(folder)
    assert memory is not None
    filled = {name: value.replace("{folder}", str(folder)) for name, value in environment.items()}
    assert overriding_variables(memory, environment=filled) == variables
