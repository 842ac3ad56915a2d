"""`anabranch serve`: the HTTP service."""

from pathlib import Path
from typing import Annotated

import typer

from anabranch.errors import MissingDependencyError

__all__ = ["serve"]


def serve(
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="The folder with the projects; it is made if it is not there."),
    ],
    init: Annotated[bool, typer.Option("--init", help="Make a token for everything, and print it once.")] = False,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen.")] = 8000,
) -> None:
    """Serve dev branches over HTTP until it is interrupted."""
    try:
        from anabranch.server.app import create_app
        from anabranch.server.service import create_first_token, open_service
        from anabranch.server.serving import serve as run
        from anabranch.server.settings import Settings
    except ModuleNotFoundError as err:
        raise MissingDependencyError(f"{err.name} is not installed", hint="pip install 'anabranch[server]'") from err
    settings = Settings(data=data.absolute())
    service = open_service(settings)
    if init:
        typer.echo(create_first_token(service))
    run(create_app(settings, service=service), host=host, port=port)
