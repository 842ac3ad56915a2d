"""The long profile of the state machine: thousands of histories, on local disk, on S3 and with processes killed."""

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import Location
from tests.processes import Program
from tests.repo.machines.counting import NOTED, recorded
from tests.repo.machines.killing import KillingMachine
from tests.repo.machines.merging import MergingMachine
from tests.repo.machines.pair import PairMachine
from tests.repo.machines.whole import RepositoryMachine

# The machines drop transactions on purpose.
pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore:a transaction on branch:ResourceWarning")]

STEPS = 50
# One history after the other; parts run beside each other.
PARTS = 8
LOCAL, REMOTE, KILLED = 2000 // PARTS, 200 // PARTS, 100


def run_histories(machine: type[PairMachine], count: int, *, part: int) -> None:
    """Run a given number of histories of which all steps were done."""
    profile = settings(
        max_examples=count,
        stateful_step_count=STEPS + 1,  # the first one fills the repository
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(part)(machine), settings=profile, _min_steps=STEPS)
    assert NOTED["whole histories"] >= count


@pytest.mark.parametrize("part", range(PARTS))
def test_histories_on_local_disk(part: int) -> None:
    with recorded(f"model on local disk, part {part + 1} of {PARTS}"):
        run_histories(type("LocalMachine", (RepositoryMachine,), {}), LOCAL, part=part)


@pytest.mark.parametrize("part", range(PARTS))
def test_histories_on_s3(part: int, s3_location: Location) -> None:
    with recorded(f"model on S3, part {part + 1} of {PARTS}"):
        run_histories(type("RemoteMachine", (RepositoryMachine,), {"location": s3_location}), REMOTE, part=part)


def test_histories_of_merges() -> None:
    with recorded("model of merges"):
        run_histories(type("MergesMachine", (MergingMachine,), {}), LOCAL, part=0)


def test_histories_with_kills(process_pool: Program) -> None:
    with recorded("model with kills"):
        run_histories(type("KilledMachine", (KillingMachine,), {"process_pool": process_pool}), KILLED, part=0)
        assert NOTED["killed"] >= KILLED
