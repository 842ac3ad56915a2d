"""Messages of Lance become our errors."""

import lance
import pyarrow as pa
import pytest

from anabranch import errors
from anabranch.format.home import Home, VersionRef
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging import append
from tests.conftest import Location


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("Ref not found error: Branch x does not exist", errors.BranchNotFoundError),
        ("Not found: lake/t.lance/_refs/branches/x.json", errors.BusyError),
        ("Encountered internal error. Clone operation should not enter build_manifest.", errors.DatasetExistsError),
        ("LanceError(IO): Failed to get AWS credentials: ProviderError", errors.StorageDeniedError),
        ("LanceError(IO): Not found: lake/t.lance/data/x.lance", errors.DamagedFileError),
        ("nobody has ever seen this", errors.StorageError),
    ],
)
def test_prose_that_needs_a_race_or_a_cloud_to_be_seen(message: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"dataset 's3://lake/t\.lance': ") as caught, lance_errors("s3://lake/t.lance"):
        raise OSError(message)
    assert type(caught.value) is error


def test_a_dataset_with_manifests_of_the_first_scheme_reports_how_to_stage_on_it(location: Location) -> None:
    home = Home.at(location / "t.lance", location.storage_options)
    lance.write_dataset(
        pa.table({"id": [1]}), home.root, enable_v2_manifest_paths=False, storage_options=home.lance_options()
    )
    with pytest.raises(errors.InvalidInputError, match="migrate_manifest_paths_v2"):
        append(VersionRef(home=home, version=1), pa.table({"id": [2]}))
    home.open().migrate_manifest_paths_v2()  # type: ignore[no-untyped-call]
    assert append(VersionRef(home=home, version=1), pa.table({"id": [2]})).count_rows() == 2
