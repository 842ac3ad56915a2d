"""`anabranch storage`: whose the bytes are."""

import anabranch as ab
from anabranch.display import human_size
from tests.cli.conftest import CUSTOMERS, ORDERS, Run


def test_shows_what_every_ref_needs(cli: Run, lake: ab.Repository) -> None:
    lake.tag_create("v1")
    reported = cli("storage", "--json").document
    report = lake.storage_report()
    assert [(each["kind"], each["name"]) for each in reported["holders"]] == [
        ("branch", "main"),
        ("branch", "dev"),
        ("tag", "tag v1"),
    ]
    for each in reported["holders"]:
        holder = report.holder(each["name"])
        assert each["own"] == {"files": holder.own.files, "bytes": holder.own.bytes}
        assert each["own"]["bytes"] + each["shared"]["bytes"] == each["total"]["bytes"]
        assert each["head"]["bytes"] + each["history"]["bytes"] == each["total"]["bytes"]
    assert [each["tables"] for each in reported["tables"]] == [[CUSTOMERS], [ORDERS]]
    assert reported["metadata"]["_commits"]["files"] > 0
    assert reported["damaged"] == []
    printed = cli("storage")
    assert printed.code == 0
    assert printed.out.splitlines()[0].endswith(f"gc would free {human_size(report.freeable.bytes)}")
    for name in ("main", "dev", "tag v1", CUSTOMERS, ORDERS, "_commits"):
        assert f"\n{name} " in printed.out


def test_reports_one_branch(cli: Run, lake: ab.Repository) -> None:
    reported = cli("storage", "--branch", "dev", "--json").document
    report = lake.storage_report()
    assert [each["name"] for each in reported["holders"]] == ["dev"]
    assert [each["table"] for each in reported["branch_tables"]] == [each.table for each in report.tables_of("dev")]
    assert reported["pinned_by"].keys() == report.pinned_by("dev").keys() == {"main"}
    printed = cli("storage", "--branch", "dev").out
    assert "shared with" in printed
    assert "\nmain " in printed


def test_reports_one_table_and_under_a_policy(cli: Run, lake: ab.Repository) -> None:
    assert lake.branch == "main"
    reported = cli("storage", "--table", CUSTOMERS, "--json").document
    assert [each["tables"] for each in reported["tables"]] == [[CUSTOMERS]]
    assert reported["metadata"] == {}
    assert "freeable" in cli("storage", "--keep-last", "1", "--keep-newer-than", "4w", "--json").document


def test_mistakes_are_named(cli: Run, lake: ab.Repository) -> None:
    assert lake.branch == "main"
    for given, code in (
        (["--branch", "nope"], "branch_not_found"),
        (["--table", "in_c_sales.nope"], "table_not_found"),
        (["--keep-newer-than", "long"], "invalid_input"),
    ):
        assert cli("storage", *given, "--json").error["code"] == code
