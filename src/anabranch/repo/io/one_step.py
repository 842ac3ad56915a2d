"""Run a function in a transaction, again if another writer was faster, and writes that are one commit each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as pads

from anabranch.errors import BusyError, InvalidInputError
from anabranch.format.arguments import checked_number
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.transaction import Transaction

RETRIES = 10

T = TypeVar("T")
# Start a transaction with a commit message.
Begin = Callable[[str], Transaction]


def transact(
    config: RepoConfig, begin: Callable[[], Transaction], change: Callable[[Transaction], T], *, retries: int
) -> tuple[T, GraphCommit | None]:
    """Run a function in a transaction and publish it. Return the result of the function, and the commit.

    If the commit conflicts with another writer, run the function again in a new transaction, on the new state of the
    branch. Only conflicts are retried: after an error of the store the commit may have been published.
    """
    left = _checked_retries(retries)
    if not callable(change):
        raise InvalidInputError(
            f"{change!r} is not a function", hint="pass a function that takes the transaction, such as a lambda"
        )
    losses = 0
    while True:
        started = config.clock()
        try:
            with begin() as tx:
                result = change(tx)
            return result, tx.published
        except BusyError:
            losses += 1
            if losses > left:
                raise
        # Writers that lost against the same commit would prepare at the same time again, and all but one would lose
        # again.
        config.give_way(losses, config.clock() - started)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStepWrite:
    """A write to one table of a branch that is one commit."""

    config: RepoConfig
    table: str
    begin: Begin
    message: str | None

    def run(self, verb: str, change: Callable[[Transaction, str], object], *, data: Any = None) -> GraphCommit | None:
        """Change the table and publish. Return the commit, or None if nothing changed."""
        message = f"{verb} {self.table}" if self.message is None else self.message
        # A stream of rows can be read only once.
        retries = 0 if isinstance(data, pa.RecordBatchReader | pads.Scanner) else RETRIES
        begin = partial(self.begin, message)
        return transact(self.config, begin, lambda tx: change(tx, self.table), retries=retries)[1]


def _checked_retries(retries: Any) -> int:
    hint = "pass how often to run the function again, 0 for never"
    number = checked_number(retries, "number of retries", hint=hint)
    if number < 0:
        raise InvalidInputError(f"the number of retries {number} is negative", hint=hint)
    return number
