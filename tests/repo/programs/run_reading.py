"""A process that reads, goes on with and publishes a run that another one began."""

from typing import Any

import pyarrow as pa

import anabranch as ab
from tests.repo.programs.running import hear, say


def main() -> None:
    while (told := hear()) is not None:
        repo = ab.open(told["uri"], storage_options=told["storage_options"])
        run, key = repo.run_get(told["run_id"]), told["key"]
        if told["do"] == "publish":
            commit = run.publish()
            say({"commit_id": None if commit is None else commit.graph_commit_id})
            continue
        if told["do"] == "append":
            with run.transaction() as tx:
                tx.append(key, pa.table({"id": told["ids"], "v": ["x"] * len(told["ids"])}))
            say({"ids": _ids(run.snapshot()[key])})
            continue
        say({"ids": _ids(run.snapshot()[key]), "state": run.info().state, "main": _ids(repo.snapshot()[key])})


def _ids(table: Any) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


if __name__ == "__main__":
    main()
