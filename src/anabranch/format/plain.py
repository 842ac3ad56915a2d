"""Lance datasets that no repository manages, written whole."""

from collections.abc import Mapping

import lance
import pyarrow as pa

from anabranch.errors import DatasetExistsError, DatasetNotFoundError
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.incoming import read_rows

__all__ = ["write_plain_dataset"]


def write_plain_dataset(
    uri: str, storage_options: Mapping[str, str], data: pa.RecordBatchReader, *, overwrite: bool
) -> int:
    """Write rows as a dataset of its own, as one version; how many rows it has."""
    home = Home.at(uri, storage_options)
    home.refuse_links()
    rows = read_rows(data)
    try:
        with rows.reading() as reader, lance_errors(home.uri, home.storage_options):
            made = lance.write_dataset(
                reader,
                home.uri,
                mode="overwrite" if overwrite and _exists(home) else "create",
                storage_options=home.lance_options(),
                enable_stable_row_ids=True,
            )
            return int(made.count_rows())
    except DatasetExistsError:
        raise DatasetExistsError(
            f"there is a dataset at {home.uri!r} already", hint="choose another place, or overwrite it"
        ) from None


def _exists(home: Home) -> bool:
    try:
        home.open()
    except DatasetNotFoundError:
        return False
    return True
