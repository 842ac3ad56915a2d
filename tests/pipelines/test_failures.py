"""The point of an error, in one line."""

import pytest

from anabranch.errors import KeyConflictError
from anabranch.pipelines.run import reason_of

ON_A_WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/tmp/shop.py", line 9, in fail
    raise ValueError("bad batch")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: bad batch

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Caused by: org.apache.spark.SparkException: Job aborted
"""
CHAINED = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
Traceback (most recent call last):
  File "a.py", line 1, in a
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in a
RuntimeError: no x
"""
UNRESOLVED = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nosuch` cannot be resolved. \
Did you mean one of the following? [`id`, `day`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['nosuch]
+- SubqueryAlias orders
"""


class AnalysisException(Exception):  # noqa: N818 - Spark's name
    __module__ = "pyspark.errors.exceptions.captured"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no day"), "ValueError: no day"),
        (ValueError(), "ValueError"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (AnalysisException(ON_A_WORKER), "ValueError: bad batch"),
        (AnalysisException(CHAINED), "RuntimeError: no x"),
        (
            AnalysisException(UNRESOLVED),
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nosuch` cannot be resolved."
            " Did you mean one of the following? [`id`, `day`]",
        ),
        (AnalysisException("[USER_RAISED_EXCEPTION] stop here SQLSTATE: P0001"), "[USER_RAISED_EXCEPTION] stop here"),
        (KeyConflictError("the key 7 is there twice", hint="keep one"), "the key 7 is there twice; keep one"),
    ],
)
def test_the_reason_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_a_long_reason_is_cut() -> None:
    assert len(reason_of(ValueError("x" * 10_000))) == 400
