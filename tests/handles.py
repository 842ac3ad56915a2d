"""Open repositories with settings that `ab.open` does not have: another clock, store, lease or engine."""

from anabranch.bootstrap import ENGINES
from anabranch.ids import MAIN
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.repository import Engines, Repository

__all__ = ["open_with"]


def open_with(config: RepoConfig, *, branch: str = MAIN, engines: Engines = ENGINES) -> Repository:
    return Repository(config, engines=engines, branch=branch)
