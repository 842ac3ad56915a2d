"""`anabranch merge --ff-only` and `--no-ff`."""

import anabranch as ab
from tests.cli.conftest import Run
from tests.cli.merging import heads


def test_ff_only_is_refused_if_the_branch_has_commits_of_its_own(cli: Run, lake: ab.Repository) -> None:
    before = heads(lake)
    error = cli("merge", "dev", "--ff-only", "--json").error
    assert (error["code"], heads(lake)) == ("write_conflict", before)
    assert cli("merge", "dev", "--ff-only", "--no-ff", "--json").error["code"] == "invalid_input"
    assert cli("rebase", "main", "--branch", "dev").code == 0
    document = cli("merge", "dev", "--ff-only", "--json").document
    assert (document["outcome"], document["commit"]["kind"]) == ("fast_forward", "merge")
    assert cli("merge", "main", "--into", "dev", "--no-ff", "--json").document["outcome"] == "fast_forward"
