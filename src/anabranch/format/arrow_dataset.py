"""A pinned version as an Arrow dataset, for engines that say which columns and rows they want."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds

from anabranch.errors import AnabranchError
from anabranch.format.arrow_filters import (
    FilterRefusedError,
    Node,
    columns_of,
    conjuncts,
    parse_filter,
    to_arrow,
    to_lance,
)
from anabranch.format.arrow_types import common_type
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.version_ref import VersionRef

__all__ = ["ArrowDataset", "Scan"]


class ArrowDataset(pds.Dataset):  # type: ignore[misc]
    """What `scanner` is asked for is all that is read: its columns, and of its filter whatever Lance can decide.

    The rest of the filter is applied to what Lance returns, so the rows are always the ones asked for. Types that
    few engines know are shown as common ones. `failure` is our error behind the one that an engine raises;
    `has_refused` says that there was a filter which the engine must apply by itself.
    """

    def __init__(self, version_ref: VersionRef) -> None:
        self._version_ref = version_ref
        self._opened = version_ref.open()
        stored = self._opened.schema
        self._shown = pa.schema([field.with_type(common_type(field.type)) for field in stored])
        self._unchanged = pa.schema([field for field in stored if self._shown.field(field.name).type == field.type])
        self.failure: AnabranchError | None = None
        self.has_refused = False

    def __reduce__(self) -> tuple[object, ...]:
        return ArrowDataset, (self._version_ref,)

    @property
    def schema(self) -> pa.Schema:
        return self._shown

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's and Lance's name
        **_: Any,
    ) -> "Scan":
        """Prepare to read; batch sizes and the like, which Arrow's own datasets take, are ignored."""
        names = list(columns) if columns is not None else self._shown.names
        split = self._checked_split(filter)
        needed = list(dict.fromkeys([*names, *split.columns]))
        with lance_errors(self._version_ref.home.uri, self._version_ref.home.storage_options):
            scan = self._opened.scanner(columns=needed, filter=split.below)
        schema = pa.schema([self._shown.field(name) for name in names])
        return Scan(self, scan, schema=schema, remaining=split.above)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:  # noqa: A002 - as above
        return int(self._opened.count_rows()) if filter is None else self.scanner(filter=filter).to_table().num_rows

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - as above
        **_: Any,
    ) -> pa.Table:
        return self.scanner(columns, filter).to_table()

    def read(self, scan: "Scan") -> Iterator[pa.RecordBatch]:
        """Read a scan; remember what goes wrong, for whoever gets only an engine's word of it."""
        try:
            with lance_errors(self._version_ref.home.uri, self._version_ref.home.storage_options):
                for stored in scan.source.to_reader():
                    batch = self._cast(stored)
                    kept = batch if scan.remaining is None else batch.filter(scan.remaining)
                    yield kept.select(scan.projected_schema.names)
        except AnabranchError as err:
            self.failure = err
            raise

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        shown = pa.schema([self._shown.field(name) for name in batch.schema.names])
        return batch if batch.schema.types == shown.types else batch.cast(shown)

    def _checked_split(self, expression: pc.Expression | None) -> "_Split":
        try:
            split = self._split(expression)
            if split.above is not None:
                self._shown.empty_table().filter(split.above)
        except (FilterRefusedError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            self.has_refused = True
            raise
        return split

    def _split(self, expression: pc.Expression | None) -> "_Split":
        if expression is None:
            return _Split()
        parsed = parse_filter(expression)
        if parsed is None:
            return _Split(above=expression, columns=tuple(self._shown.names))
        below: list[str] = []
        above: list[Node] = []
        for part in conjuncts(parsed):
            said = to_lance(part, self._unchanged)
            if said is None:
                above.append(part)
            else:
                below.append(said)
        remaining = None
        for part in above:
            remaining = to_arrow(part) if remaining is None else remaining & to_arrow(part)
        names = tuple(name for part in above for name in columns_of(part))
        return _Split(below=" AND ".join(below) or None, above=remaining, columns=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """The part of a filter that Lance decides, and the part that is left, with the columns it looks at."""

    below: str | None = None
    above: pc.Expression | None = None
    columns: tuple[str, ...] = ()


class Scan:
    """The part of Arrow's scanner that engines use."""

    def __init__(
        self,
        dataset: ArrowDataset,
        source: lance.LanceScanner,
        *,
        schema: pa.Schema,
        remaining: pc.Expression | None,
    ) -> None:
        self._dataset = dataset
        self.source = source
        self.remaining = remaining
        self.projected_schema = schema

    def explain(self) -> str:
        """What Lance will do."""
        return str(self.source.explain_plan(verbose=True))

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._dataset.read(self))

    def to_table(self) -> pa.Table:
        return self.to_reader().read_all()
