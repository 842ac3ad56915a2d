"""`anabranch init`, and what the folder remembers of it."""

import getpass
import json
from pathlib import Path

import pytest

import anabranch as ab
from tests.cli.conftest import Run
from tests.cli.test_main import in_a_process
from tests.conftest import Location

SECRET = "love-lace"  # noqa: S105


@pytest.mark.s3
def test_a_repository_is_made_and_remembered(cli: Run, location: Location, folder: Path) -> None:
    made = cli("init", location / "lake", "--actor", "ada", "--json").document
    assert list(made) == ["repository", "branch", "head_commit_id", "remembered_in"]
    assert (made["repository"], made["branch"]) == (location / "lake", "main")
    assert made["remembered_in"] == str(folder / ".anabranch.json")
    repo = ab.open(location / "lake", storage_options=location.storage_options)
    assert repo.head_commit_id_for_branch("main") == made["head_commit_id"]
    assert repo.get_commit(made["head_commit_id"]).actor_id == "ada"
    assert cli("status", "--json").document["repository"] == location / "lake"


@pytest.mark.s3
def test_no_storage_option_is_remembered(cli: Run, location: Location, folder: Path) -> None:
    cli("init", location / "lake", "-o", f"aws_session_token={SECRET}" if location.is_local else "client_max_retries=3")
    remembered = json.loads((folder / ".anabranch.json").read_text())
    assert list(remembered) == ["format", "repository", "branch"]
    text = (folder / ".anabranch.json").read_text()
    assert not any(value in text for value in [SECRET, "client_max_retries", *location.storage_options.values()])


def test_people_read_what_was_made(run: Run, folder: Path) -> None:
    answer = run("init", "lake")
    assert answer.code == 0
    assert answer.out.startswith(f"made a repository at {folder}/lake, with branch main at 01")
    assert answer.out.count("\n") == 1


def test_without_a_path_the_folder_itself_becomes_one(run: Run, folder: Path) -> None:
    assert run("init", "--json").document["repository"] == str(folder)
    assert run("status", "--json").document["repository"] == str(folder)
    assert run("doctor").out.endswith("is in order\n"), "the file in which the folder remembers its branch is known"


def test_the_variable_gives_the_location_without_a_path(run: Run, folder: Path) -> None:
    env = {"ANABRANCH_REPO": "from-env"}
    assert run("init", "--json", env=env).document["repository"] == str(folder / "from-env")
    answer = run("init", "other", env=env)
    assert "note: ANABRANCH_REPO is set to another value, and overrides it\n" in answer.out
    way = f"anabranch switch main --repo {folder}/from-env"
    assert f"note: this folder worked with {folder}/from-env before; return to it with: {way}\n" in answer.out


def test_a_second_repository_in_one_location_is_refused(run: Run) -> None:
    run("init", "lake")
    answer = run("init", "lake")
    assert (answer.code, answer.out) == (4, "")
    assert run("init", "lake", "--json").error["code"] == "repository_exists"


def test_a_second_repository_needs_a_path(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init", "lake")
    (folder / "deep").mkdir()
    for inside in (folder, folder / "deep"):
        monkeypatch.chdir(inside)
        error = run("init", "--json").error
        assert (error["code"], str(folder / "lake") in error["message"]) == ("repository_exists", True)
    assert run("status", "--json").document["repository"] == str(folder / "lake")
    assert run("init", ".", "--json").document["repository"] == str(folder / "deep")


def test_the_actor_is_the_user_unless_named(run: Run) -> None:
    def actor_of(name: str) -> object:
        return run("show", "--repo", name, "--json").document["actor"]

    run("init", "a")
    run("init", "b", env={"ANABRANCH_ACTOR": "eve"})
    run("init", "c", "--actor", "ada", env={"ANABRANCH_ACTOR": "eve"})
    assert [actor_of("a"), actor_of("b"), actor_of("c")] == [getpass.getuser(), "eve", "ada"]


def test_real_processes_share_the_memory_of_a_folder_and_those_below_it(folder: Path) -> None:
    assert in_a_process("init", "lake", cwd=folder).returncode == 0
    (folder / "deep").mkdir()
    answer = in_a_process("status", "--json", cwd=folder / "deep")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout)["repository"] == str(folder / "lake")
    external = in_a_process("status", cwd=folder.parent)
    assert (external.returncode, external.stdout) == (3, "")
    assert "create one with 'anabranch init PATH'" in external.stderr


def test_repository_inside_another_is_refused(run: Run, folder: Path) -> None:
    run("init", "lake")
    for path in ("lake/inner", "lake/tables/shop"):
        answer = run("init", path)
        assert answer.code != 0
        assert f"is inside the repository at '{folder}/lake'" in answer.err
        assert not (folder / path / "_repo.json").exists()
    assert run("init", "lake2").code == 0, "only its name begins with that of the other"


def test_repository_near_a_wrong_path_is_named(run: Run, folder: Path) -> None:
    run("init", "demo/lake")
    for wrong in ("demo", "demo/lake/tables", "demo/lake/tables/none"):
        answer = run("status", "--repo", wrong)
        assert answer.code != 0
        assert f"open '{folder}/demo/lake'" in answer.err
    assert "create one with" in run("status", "--repo", "elsewhere").err
