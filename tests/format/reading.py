"""Reading the newest version of a home, base by base."""

from typing import Any

import pyarrow as pa

from anabranch.format.home import Home, VersionRef
from anabranch.format.scan import read_table


def read_base(home: Home, base: str | int, **options: Any) -> pa.Table:
    return read_table(VersionRef(home=home, version=home.head_version()), base=base, **options)
