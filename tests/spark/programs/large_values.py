"""Write, change and read large values through Spark with a small heap; print how much memory that took."""

import json
import sys
import time
from pathlib import Path

import anabranch as ab
from tests.spark.processes import gateways


def peak(pid: int) -> int:
    """Return the most memory that a process has had, in MB."""
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) >> 10


def main(uri: str, count: str, size: str, largest: str) -> None:
    """Use `count` values of `size` letters, and one of `largest`."""
    repo = ab.open(uri)
    config = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
    spark = ab.spark_session(repo, master="local[2]", config=config)
    seen: dict[str, object] = {}

    def run(name: str, statement: str) -> list[list[object]]:
        began = time.monotonic()
        rows = [list(row) for row in spark.sql(statement).collect()]
        seen[name] = round(time.monotonic() - began, 1)
        return rows

    run("create", "CREATE TABLE lake.s.texts (id BIGINT, v STRING, PRIMARY KEY (id))")
    # Letters that do not compress to nothing: hashes, of which each value has a few hundred different ones.
    text = f"repeat(sha2(CAST(id AS STRING), 512), {int(size) // 128})"
    run("insert", f"INSERT INTO lake.s.texts SELECT id, {text} FROM range(0, {count}, 1, 2)")
    total = int(count) * (int(size) // 128) * 128
    assert run("read", "SELECT count(*), sum(length(v)) FROM lake.s.texts") == [[int(count), total]]
    last = int(count)
    source = (
        f"SELECT id, repeat('x', {largest}) AS v FROM range({last}, {last + 1}) UNION ALL "
        f"SELECT id, repeat('y', {size}) FROM range(100)"
    )
    run(
        "merge",
        f"MERGE INTO lake.s.texts t USING ({source}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )
    found = run("read again", "SELECT max(length(v)), count_if(v LIKE 'y%'), count(*) FROM lake.s.texts")
    assert found == [[int(largest), 100, int(count) + 1]]
    assert len(spark.sql(f"SELECT v FROM lake.s.texts WHERE id = {count}").collect()[0][0]) == int(largest)
    [gateway] = gateways()
    seen["gateway MB"], seen["jvm MB"] = peak(gateway.pid), peak(gateway.parent)
    print("SEEN " + json.dumps(seen))  # noqa: T201 - a program's answer
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
