"""Random histories, done to a repository and to its plain model at once: both must agree at every step."""

from hypothesis import settings

from tests.repo.machines.merging import MergingMachine
from tests.repo.machines.whole import RepositoryMachine

# Both machines together take as long as the profile allows for one; the long profile has histories of its own.
_FEW = min(settings().max_examples, 6)
MergingMachine.TestCase.settings = settings(max_examples=_FEW // 3, stateful_step_count=10)
TestMergingMachine = MergingMachine.TestCase
RepositoryMachine.TestCase.settings = settings(max_examples=_FEW // 3, stateful_step_count=10)
TestRepositoryMachine = RepositoryMachine.TestCase
