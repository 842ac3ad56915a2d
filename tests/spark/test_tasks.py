"""Tasks that Spark's workers do in Python."""

import os

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import InvalidInputError
from anabranch.spark.tasks import do_on_workers

pytestmark = pytest.mark.spark


def test_every_task_is_done_once_elsewhere_and_answered_in_its_position(spark: SparkSession) -> None:
    assert spark.version.startswith("4.")
    tasks = [str(number).encode() for number in range(7)]
    answers = [answer.split() for answer in do_on_workers(lambda task: b"%s %d" % (task, os.getpid()), tasks)]
    assert [task for task, _ in answers] == tasks
    assert str(os.getpid()).encode() not in {worker for _, worker in answers}


def test_nothing_to_do_needs_no_session() -> None:
    assert do_on_workers(lambda task: task, []) == []


def test_what_a_worker_refuses_is_raised_here(spark: SparkSession) -> None:
    assert spark is not None

    def refuse(task: bytes) -> bytes:
        raise InvalidInputError(f"task {task.decode()!r} is wrong", hint="give another")

    with pytest.raises(InvalidInputError, match="task '3' is wrong"):
        do_on_workers(refuse, [b"3"])
