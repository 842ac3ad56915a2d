"""Many clients at once: every request is answered, no row is lost, and a table is copied once."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from tests.server.conftest import Running, new_project, process, secret_of, wait_until_healthy
from tests.server.programs.clients import Budget, Client, build_site, run_clients
from tests.server.programs.inspecting import check_agreement, check_knowledge

WRITERS = 16


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Running]:
    """A service in a process of its own, without other clients."""
    with process(tmp_path, "--init") as (started, url):
        secret = secret_of(started)
        wait_until_healthy(url, started)
        yield Running(url=url, data=tmp_path, secret=secret)


def test_first_writes_that_come_together_make_one_copy(running: Running) -> None:
    with running.client() as client:
        project = new_project(client)
        branch = project.branch()
        before = project.preview()
        ready = threading.Barrier(WRITERS)
        statuses: list[int] = []

        def write(number: int) -> None:
            with running.client() as own:
                ready.wait()
                body = {"rows": [{"id": 100 + number, "v": "first"}]}
                statuses.append(own.post(f"{project.table(branch)}/rows", json=body).status_code)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [201] * WRITERS
        assert project.ids(branch) == [1, 2, 3, *range(100, 100 + WRITERS)]
        assert project.preview() == before
        assert running.service is not None
        noted = running.service.database.read("SELECT * FROM branch_tables WHERE branch_id = ?", [branch])
        assert [(row["bucket_name"], row["table_name"]) for row in noted] == [("in_c_sales", "orders")]
    table = ab.dataset(running.data / f"project_{project.id}" / "tables" / "in_c_sales" / "orders.lance")
    homes = [home.name for home in table.branch_list() if home.name.startswith(f"{branch}/")]
    assert len(homes) == 1


def test_many_clients_lose_nothing(alone: Running) -> None:
    work_together(alone, clients=16, requests=250)


@pytest.mark.proof
@pytest.mark.parametrize("clients", [16, 50])
def test_many_clients_lose_nothing_for_long(alone: Running, clients: int) -> None:
    work_together(alone, clients=clients, requests=2000)


def work_together(running: Running, *, clients: int, requests: int) -> None:
    """Each client checks what it is answered; afterwards all that was acknowledged is there, and nothing else."""
    site = build_site(running)
    crowd = [Client(number=number, site=site) for number in range(clients)]
    budget = Budget(requests)
    with run_clients(crowd, running, budget, seed=clients):
        pass
    assert budget.acknowledged >= requests
    check_knowledge(crowd, running)
    check_agreement(site, running)
