"""What a service shows, and the content of its repositories and metadata, to be compared with what clients know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

import anabranch as ab
from tests.server.conftest import Running, ok
from tests.server.programs.clients import IDS, Client, Site
from tests.server.programs.knowledge import Fact, Value

__all__ = ["check_agreement", "check_knowledge"]


@dataclass(frozen=True)
class _Looking:
    """Asks a service without other clients, for each thing once."""

    http: httpx.Client
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def get(self, path: str) -> dict[str, Any]:
        """What is there; nothing if it is not."""
        if path not in self.answers:
            response = self.http.get(path)
            self.answers[path] = {} if response.status_code == 404 else ok(response)
        return self.answers[path]


def check_knowledge(clients: Sequence[Client], running: Running) -> None:
    """Every client finds what was acknowledged, and nothing else that it did not ask for."""
    with running.client() as http:
        looking = _Looking(http)
        for client in clients:
            client.knowledge.settle(_see(client, looking))


def check_agreement(site: Site, running: Running) -> None:
    """The service shows the branches and copies that the repository has."""
    repository = ab.open(running.data / f"project_{site.project}")
    there = {info.name: info for info in repository.branch_list() if info.name != "main"}
    with running.client() as http:
        shown = ok(http.get(f"{site.path}/branches"))["branches"]
        assert sorted(branch["id"] for branch in shown) == sorted(there)
        for name, info in there.items():
            copied = ok(http.get(f"{site.path}/branches/{name}"))["tables"]
            tables = {key for key in info.own_tables if key in repository.snapshot_of(name)}
            assert {f"{one['bucket']}.{one['table']}" for one in copied} == tables
    assert not [found for found in repository.doctor().findings if found.severity == "error"]


def _see(client: Client, looking: _Looking) -> Mapping[Fact, Value]:
    """All that concerns one client."""
    facts = {*client.knowledge.certain, *(fact for doubt in client.knowledge.in_doubt for fact in doubt)}
    site, seen = client.site, dict[Fact, Value]()
    branches = {branch["name"]: branch["id"] for branch in looking.get(f"{site.path}/branches")["branches"]}
    mine = {name: found for name, found in branches.items() if name.startswith(f"branch {client.number}.")}
    client.own_branches = mine
    seen |= {("branch", name): "there" for name in mine}
    for location in sorted({fact[1] for fact in facts if fact[0] == "bucket"}):
        seen |= _see_bucket(client, looking, location)
    for location, table in sorted({fact[1:3] for fact in facts if fact[0] == "row"}):
        seen |= _see_rows(client, looking, location, table, facts)
    projects = [project["id"] for project in looking.get("/projects")["projects"]]
    return seen | {("project", name): "there" for name in projects if name.startswith(f"project-{client.number}-")}


def _see_bucket(client: Client, looking: _Looking, location: str) -> dict[Fact, Value]:
    on = f"{client.site.path}/branches/{location}/buckets"
    if client.bucket not in [bucket["name"] for bucket in looking.get(on)["buckets"]]:
        return {}
    tables = looking.get(f"{on}/{client.bucket}/tables")["tables"]
    seen: dict[Fact, Value] = {("bucket", location, client.bucket): "there"}
    return seen | {("table", location, f"{client.bucket}.{one['name']}"): "there" for one in tables}


def _see_rows(client: Client, looking: _Looking, location: str, table: str, facts: set[Fact]) -> dict[Fact, Value]:
    """The rows of a client; those of main that a branch shows are another fact."""
    bucket, _, leaf = table.partition(".")
    path = f"{client.site.path}/branches/{location}/buckets/{bucket}/tables/{leaf}/preview?limit=10000"
    found = looking.get(path).get("rows", [])
    assert looking.get(path).get("total_row_count", 0) == len({row["id"] for row in found}) == len(found)
    mine = [row for row in found if row["id"] // IDS == client.number]
    seen: dict[Fact, Value] = {("row", location, table, str(row["id"])): row["v"] for row in mine}
    if location == "default":
        return seen
    return {fact: value for fact, value in seen.items() if fact in facts or ("row", "default", *fact[2:]) not in facts}
