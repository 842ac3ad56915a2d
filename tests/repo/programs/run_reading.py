"""A process that reads, continues with and publishes a run that another one began."""

from typing import Any

import pyarrow as pa

import anabranch as ab
from tests.processes import answer_with, receive


def main() -> None:
    while (reported := receive()) is not None:
        repo = ab.open(reported["uri"], storage_options=reported["storage_options"])
        run, key = repo.run_get(reported["run_id"]), reported["key"]
        if reported["do"] == "publish":
            commit = run.publish()
            answer_with({"commit_id": None if commit is None else commit.graph_commit_id})
            continue
        if reported["do"] == "append":
            with run.transaction() as tx:
                tx.append(key, pa.table({"id": reported["ids"], "v": ["x"] * len(reported["ids"])}))
            answer_with({"ids": _ids(run.snapshot()[key])})
            continue
        answer_with({"ids": _ids(run.snapshot()[key]), "state": run.info().state, "main": _ids(repo.snapshot()[key])})


def _ids(table: Any) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


if __name__ == "__main__":
    main()
