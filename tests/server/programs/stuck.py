"""A service in a process of its own with one job that never ends."""

import sys
import threading
from pathlib import Path

from anabranch.server.app import create_app, listen, serve
from anabranch.server.auth import DEFAULT_BRANCH
from anabranch.server.jobs import JobKind
from anabranch.server.service import create_first_token, open_service
from anabranch.server.settings import Limits, Settings


def main(data: str, port: str, stop_seconds: str) -> None:
    settings = Settings(data=Path(data), limits=Limits(stop_seconds=float(stop_seconds)))
    service = open_service(settings)
    create_first_token(service)
    service.projects.create("7", name=None, description="", actor=None)
    begun = threading.Event()

    def work(*_: object) -> dict[str, object]:
        begun.set()
        threading.Event().wait()
        return {}

    branch = service.branches.open("7", DEFAULT_BRANCH, service.tokens.list_all()[0])
    service.jobs.submit(branch, JobKind.EXPORT, {}, work)
    begun.wait()
    serve(create_app(settings, service=service), listen(host="127.0.0.1", port=int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
