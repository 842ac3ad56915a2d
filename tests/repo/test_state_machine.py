"""Random histories, done to a repository and to its plain model at once: both must agree at every step."""

import pytest
from hypothesis import settings

from tests.repo.machines.merging import MergingMachine
from tests.repo.machines.whole import RepositoryMachine

# The machines drop transactions on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:a transaction on branch:ResourceWarning")

# Both machines together take as long as the profile allows for one; the long profile has histories of its own.
_FEW = min(settings().max_examples, 6)
MergingMachine.TestCase.settings = settings(max_examples=_FEW // 3, stateful_step_count=10)
TestMergingMachine = MergingMachine.TestCase
RepositoryMachine.TestCase.settings = settings(max_examples=_FEW // 3, stateful_step_count=10)
TestRepositoryMachine = RepositoryMachine.TestCase
