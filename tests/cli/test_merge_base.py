"""`anabranch merge-base`, and `A...B` in `anabranch diff`."""

import pytest

import anabranch as ab
from tests.cli.conftest import ORDERS, Run


@pytest.mark.s3
def test_merge_base_is_shown_with_its_message(cli: Run, lake: ab.Repository) -> None:
    base = lake.merge_base("main", "dev")
    subject = base.message.partition("\n")[0]
    assert cli("merge-base", "main", "dev").out == f"{base.id[:14]} {subject}\n"
    assert cli("merge-base", "dev", "--all").out == f"{base.id[:14]} {subject}\n"
    document = cli("merge-base", "main", "dev", "--json").document
    assert (document["id"], document["message"], document["all"]) == (base.id, base.message, [base.id])
    assert cli("merge-base", "main", "nope", "--json").error["code"] == "branch_not_found"


def test_diff_takes_ranges(cli: Run, lake: ab.Repository) -> None:
    base = lake.merge_base("main", "dev").id
    since = cli("diff", "main...dev", "--json").document
    assert (since["before"], since["after"]) == (base, lake.snapshot_of("dev").id)
    assert [table["table"] for table in since["tables"]] == [ORDERS]
    assert cli("diff", "main..dev", "--json").document == cli("diff", "main", "dev", "--json").document
    assert cli("diff", "...dev", "--json").document == since
    assert cli("diff", "main..dev", "dev", "--json").error["code"] == "invalid_input"
    assert cli("diff", "..", "--json").error["code"] == "invalid_name"
