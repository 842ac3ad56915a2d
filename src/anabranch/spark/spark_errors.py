"""Our own errors, found again in what Spark makes of them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from anabranch import errors
from anabranch.errors import AnabranchError

__all__ = ["spark_errors"]

# The last line of a Python traceback, or of an exception of the catalog. Spark keeps only the text.
_LAST_LINE = re.compile(r"(?:^|AnabranchException: )anabranch\.errors\.(\w+): (.*); ([^;\n]*)$", re.MULTILINE)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise what a worker, or the data source on the driver, raised; leave Spark's own errors as they are."""
    try:
        yield
    # Rows that are brought here one partition after the other fail with an error of the bridge to Java.
    except (PySparkException, Py4JJavaError) as err:
        found = find_error(str(err))
        if found is None:
            raise
        raise found from err


def find_error(text: str) -> AnabranchError | None:
    """The error whose traceback a text holds, if it is one of ours."""
    for name, problem, hint in reversed(_LAST_LINE.findall(text)):  # the cause of an error is printed before it
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, AnabranchError):
            return kind(problem, hint=hint)
    return None
