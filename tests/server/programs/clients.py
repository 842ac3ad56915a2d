"""Clients that do all kinds of things with one project at once, each with rows and names of its own."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from tests.server.conftest import Running, new_project, ok
from tests.server.programs.knowledge import Fact, Knowledge, NotAnsweredError, Value

__all__ = ["Budget", "Client", "Site", "build_site", "run_clients"]

TABLES = ("in_c_sales.orders", "in_c_sales.items")
BRANCHES = 3
IDS = 1_000_000
MOST_TRIES = 50


@dataclass(frozen=True, kw_only=True)
class Site:
    """A project with main and branches that all clients share."""

    project: str
    branches: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"/projects/{self.project}"


def build_site(running: Running) -> Site:
    with running.client() as http:
        project = new_project(http, rows=0)
        project.create_table("items")
        return Site(project=project.id, branches=tuple(project.branch() for _ in range(BRANCHES)))


class Budget:
    """How many requests all clients together still make, and what came of them."""

    def __init__(self, requests: int) -> None:
        self._left = requests
        self._counted = threading.Condition()
        self.answers: dict[int, int] = {}
        self.refusals: dict[str, int] = {}
        self.stopped = threading.Event()

    @property
    def is_spent(self) -> bool:
        return self.stopped.is_set() or self._left <= 0

    @property
    def acknowledged(self) -> int:
        return sum(self.answers.values())

    def count(self, response: httpx.Response) -> None:
        with self._counted:
            self._left -= 1
            self.answers[response.status_code] = self.answers.get(response.status_code, 0) + 1
            if response.is_error:
                code = response.json()["code"]
                self.refusals[code] = self.refusals.get(code, 0) + 1
            self._counted.notify_all()

    def wait_for(self, answers: int) -> None:
        """Return when a given number of requests were answered, or something went wrong."""
        with self._counted:
            self._counted.wait_for(lambda: self.acknowledged >= answers or self.stopped.is_set())

    def stop(self) -> None:
        self.stopped.set()
        with self._counted:
            self._counted.notify_all()


@dataclass
class Client:
    """One of many; what it knows about its rows, tables, buckets and branches holds whatever others do."""

    number: int
    site: Site
    knowledge: Knowledge = field(default_factory=Knowledge)
    own_branches: dict[str, str] = field(default_factory=dict)
    _serial: "count[int]" = field(default_factory=lambda: count(1))
    _http: httpx.Client = field(init=False, repr=False)
    _budget: Budget = field(init=False, repr=False)
    _chance: random.Random = field(init=False, repr=False)

    @property
    def bucket(self) -> str:
        return f"c{self.number}"

    def work(self, running: Running, budget: Budget, *, seed: int) -> None:
        """Do one thing after the other until enough was done, or the service has stopped."""
        self._budget, self._chance = budget, random.Random(f"{seed} {self.number}")
        actions, weights = zip(*self._menu(), strict=True)
        with running.client() as self._http:
            try:
                while not budget.is_spent:
                    self._chance.choices(actions, weights)[0]()
            except NotAnsweredError:
                assert budget.stopped.is_set(), "the service ended by itself"

    def _menu(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self._preview, 30),
            (self._insert, 20),
            (self._upsert, 10),
            (self._delete, 6),
            (self._import, 6),
            (self._export, 4),
            (self._look_around, 15),
            (self._use_own_branch, 8),
            (self._use_own_bucket, 8),
            (self._use_own_project, 1),
        ]

    def _preview(self) -> None:
        self._compare(*self._position())

    def _insert(self) -> None:
        self._write("POST", *self._position(), ids=self._new_ids())

    def _upsert(self) -> None:
        branch, table = self._position()
        known = [int(fact[3]) for fact, value in self.knowledge.rows(branch, table).items() if value is not None]
        self._write("PUT", branch, table, ids=[*known[-2:], *self._new_ids()])

    def _delete(self) -> None:
        branch, table = self._position()
        known = [fact for fact, value in self.knowledge.rows(branch, table).items() if value is not None][:2]
        if known:
            filter_ = f"id IN ({', '.join(fact[3] for fact in known)})"
            with self.knowledge.changing(dict.fromkeys(known)):
                answer = self._ask("DELETE", f"{self._at(branch, table)}/rows", params={"where": filter_})
            assert answer["rows"] == len(known)

    def _import(self) -> None:
        branch, table = self._position()
        self._send_file(branch, table, incremental=True)

    def _export(self) -> None:
        branch, table = self._position()
        body = {"format": "json", "where": self._own_rows}
        made = self._ask("POST", f"{self._at(branch, table)}/export", json=body)
        response = self._send("GET", made["url"])
        assert len(response.text.splitlines()) == made["rows"]

    def _look_around(self) -> None:
        branch = self._chance.choice(["default", *self.site.branches])
        on = f"{self.site.path}/branches/{branch}"
        paths = [f"{on}/commits", f"{on}/buckets", f"{on}/buckets/in_c_sales/tables", f"{self.site.path}/branches"]
        paths += [self._at(branch, TABLES[0]), "/jobs", self.site.path]
        if branch != "default":
            paths += [on, f"{on}/diff", f"{on}/drift"]
        self._ask("GET", self._chance.choice(paths))

    def _use_own_branch(self) -> None:
        """Make a branch, write to it, let it follow main again, delete it: one of these."""
        if not self.own_branches:
            name = f"branch {self.number}.{next(self._serial)}"
            with self.knowledge.changing({("branch", name): "there"}):
                made = self._ask("POST", f"{self.site.path}/branches", json={"name": name})
            self.own_branches[name] = made["id"]
            return
        (name, branch), table = next(iter(self.own_branches.items())), self._chance.choice(TABLES)
        match self._chance.randrange(4):
            case 0:
                self._write("POST", branch, table, ids=self._new_ids())
            case 1:
                self._compare(branch, table)
            case 2:
                gone = self.knowledge.without_rows(branch, table)
                with self.knowledge.changing(gone):
                    bucket, _, leaf = table.partition(".")
                    self._ask("POST", f"{self.site.path}/branches/{branch}/tables/{bucket}/{leaf}/pull")
            case _:
                del self.own_branches[name]
                with self.knowledge.changing({**self.knowledge.without_rows(branch), ("branch", name): None}):
                    self._ask("DELETE", f"{self.site.path}/branches/{branch}")
                self._send("GET", f"{self.site.path}/branches/{branch}", expected=404)

    def _use_own_bucket(self) -> None:
        """Make a bucket and tables in it, on main or a branch, fill and drop them: one of these."""
        branch = ["default", *self.site.branches][self.number % (BRANCHES + 1)]
        on = f"{self.site.path}/branches/{branch}/buckets"
        bucket: Fact = ("bucket", branch, self.bucket)
        tables = [fact for fact, value in self._known("table") if value is not None]
        if self.knowledge.certain.get(bucket) is None:
            with self.knowledge.changing({bucket: "there"}):
                self._ask("POST", on, json={"name": self.bucket})
        elif not tables:
            self._create_table(branch, f"t{next(self._serial)}")
        else:
            table = tables[0][2]
            match self._chance.randrange(5):
                case 0 | 1:
                    self._send_file(branch, table, incremental=False)
                case 2:
                    self._compare(branch, table)
                case 3:
                    gone = {tables[0]: None, **self.knowledge.without_rows(branch, table)}
                    with self.knowledge.changing(gone):
                        self._ask("DELETE", self._at(branch, table))
                case _:
                    self._delete_bucket(bucket, on, tables)

    def _create_table(self, branch: str, name: str) -> None:
        columns = [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]
        with self.knowledge.changing({("table", branch, f"{self.bucket}.{name}"): "there"}):
            body = {"name": name, "columns": columns, "primary_key": ["id"]}
            self._ask("POST", f"{self.site.path}/branches/{branch}/buckets/{self.bucket}/tables", json=body)

    def _delete_bucket(self, bucket: Fact, on: str, tables: Sequence[Fact]) -> None:
        # The tables go by one commit, the bucket by another step: of two facts in doubt, each may be true by itself.
        gone: dict[Fact, Value] = dict.fromkeys(tables)
        for _, branch, table in tables:
            gone |= self.knowledge.without_rows(branch, table)
        with self.knowledge.changing(gone), self.knowledge.changing({bucket: None}):
            self._ask("DELETE", f"{on}/{self.bucket}", params={"cascade": "true"})

    def _use_own_project(self) -> None:
        name = f"project-{self.number}-{next(self._serial)}"
        with self.knowledge.changing({("project", name): "there"}):
            self._ask("POST", "/projects", json={"id": name})
        with self.knowledge.changing({("project", name): None}):
            self._ask("DELETE", f"/projects/{name}")

    def _write(self, method: str, branch: str, table: str, *, ids: Sequence[int]) -> None:
        rows = [{"id": number, "v": f"v{next(self._serial)}"} for number in ids]
        with self.knowledge.changing(_facts(branch, table, rows)):
            answer = self._ask(method, f"{self._at(branch, table)}/rows", json={"rows": rows})
        assert answer["rows"] == len(rows)

    def _send_file(self, branch: str, table: str, *, incremental: bool) -> None:
        rows = [{"id": number, "v": f"v{next(self._serial)}"} for number in self._new_ids()]
        text = "id,v\n" + "".join(f"{row['id']},{row['v']}\n" for row in rows)
        before = {} if incremental else self.knowledge.without_rows(branch, table)
        with self.knowledge.changing({**before, **_facts(branch, table, rows)}):
            answer = self._ask(
                "POST",
                f"{self._at(branch, table)}/import",
                params={"incremental": incremental, "wait": 60},
                files={"file": (f"{rows[0]['id']}.csv", text)},
            )
        assert answer["imported_rows"] == len(rows)

    def _compare(self, branch: str, table: str) -> None:
        """What this client wrote is there at once; main's rows may be there too, as they were when they were copied."""
        params: dict[str, Any] = {"where": self._own_rows, "limit": 10_000, "count": True}
        shown = self._ask("GET", f"{self._at(branch, table)}/preview", params=params)
        seen = {str(row["id"]): row["v"] for row in shown["rows"]}
        assert len(seen) == len(shown["rows"]) == shown["total_row_count"]
        for fact, value in self.knowledge.rows(branch, table).items():
            assert seen.get(fact[3]) == value, (fact, value, seen.get(fact[3]))

    def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return ok(self._send(method, path, **options))

    def _send(self, method: str, path: str, *, expected: int | None = None, **options: Any) -> httpx.Response:
        """Send a request, again if the answer asks for it."""
        for _ in range(MOST_TRIES):
            try:
                response = self._http.request(method, path, **options)
            except httpx.TransportError as err:
                raise NotAnsweredError(path) from err
            self._budget.count(response)
            if response.status_code not in (409, 429):
                break
            details = response.json()["details"]
            assert details["hint"], response.text
            if not details["retryable"]:
                break
            assert int(response.headers["retry-after"]) >= 1
            self._budget.stopped.wait(0.05)
        reported = (response.status_code, expected, f"{method} {path}", response.text)
        assert response.is_success if expected is None else response.status_code == expected, reported
        return response

    @property
    def _own_rows(self) -> str:
        return f"id >= {self.number * IDS} AND id < {(self.number + 1) * IDS}"

    def _known(self, kind: str) -> Iterator[tuple[Fact, Value]]:
        return ((fact, value) for fact, value in self.knowledge.certain.items() if fact[0] == kind)

    def _position(self) -> tuple[str, str]:
        return self._chance.choice(["default", *self.site.branches]), self._chance.choice(TABLES)

    def _new_ids(self) -> list[int]:
        return [self.number * IDS + next(self._serial) for _ in range(self._chance.randint(1, 3))]

    def _at(self, branch: str, table: str) -> str:
        bucket, _, leaf = table.partition(".")
        return f"{self.site.path}/branches/{branch}/buckets/{bucket}/tables/{leaf}"


def _facts(branch: str, table: str, rows: Sequence[dict[str, Any]]) -> dict[Fact, Value]:
    return {("row", branch, table, str(row["id"])): row["v"] for row in rows}


@contextmanager
def run_clients(clients: Sequence[Client], running: Running, budget: Budget, *, seed: int) -> Iterator[None]:
    """Let all clients work at once; leave when they are done, with the error of the first that has one."""
    failures: list[BaseException] = []

    def work(client: Client) -> None:
        try:
            client.work(running, budget, seed=seed)
        except BaseException as err:  # noqa: BLE001 - raised below, in the main thread
            failures.append(err)
            budget.stop()

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
