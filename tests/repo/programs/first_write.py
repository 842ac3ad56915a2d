"""A process that begins a transaction at the first signal, and appends and publishes at the second."""

import pyarrow as pa

import anabranch as ab
from tests.processes import answer_with, receive


def main() -> None:
    begun: ab.Transaction | None = None
    key = ""
    while (request := receive()) is not None:
        if request["do"] == "begin":
            key = request["key"]
            repo = ab.open(request["uri"], storage_options=request["storage_options"])
            begun = repo.transaction(request["branch"])
            answer_with({"rows": begun[key].count_rows()})
        elif begun is not None:
            numbers = request["ids"]
            with begun as tx:
                tx.append(key, pa.table({"id": pa.array(numbers, pa.int64()), "v": ["x"] * len(numbers)}))
            answer_with({"done": True})


if __name__ == "__main__":
    main()
