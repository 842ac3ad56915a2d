"""`anabranch serve`: the HTTP service."""

from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.arguments import AsJson
from anabranch.cli.output import Answer, output_for
from anabranch.errors import MissingDependencyError

__all__ = ["serve"]


def serve(
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="The folder with the projects; it is made if it is not there."),
    ],
    init: Annotated[bool, typer.Option("--init", help="Make a token for everything, and print it once.")] = False,
    rebuild_metadata: Annotated[
        bool,
        typer.Option(
            "--rebuild-metadata", help="First rebuild metadata.duckdb from the repositories. Tokens are lost."
        ),
    ] = False,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where to listen.")] = 8000,
    as_json: AsJson = False,
) -> None:
    """Serve dev branches over HTTP until it is interrupted."""
    try:
        from anabranch.server.app import create_app
        from anabranch.server.connections import listen
        from anabranch.server.connections import serve as run
        from anabranch.server.rebuild import rebuild_metadata as rebuild
        from anabranch.server.service import create_first_token, open_service
        from anabranch.server.settings import Settings
    except ModuleNotFoundError as err:
        raise MissingDependencyError(f"{err.name} is not installed", hint="pip install 'anabranch[server]'") from err
    settings = Settings(data=data.absolute())
    document: dict[str, Any] = {"data": str(settings.data), "url": f"http://{host}:{port}", "token": None}
    sentences = []
    if rebuild_metadata:
        rebuilt = rebuild(settings)
        document["rebuilt"] = {"projects": rebuilt.projects, "branches": rebuilt.branches, "skipped": rebuilt.skipped}
        sentences.append(f"rebuilt the metadata; projects: {rebuilt.projects}, dev branches: {rebuilt.branches}")
        sentences += [f"note: {name} cannot be opened as a repository" for name in rebuilt.skipped]
    service = open_service(settings)
    listening = listen(host=host, port=port)
    if init:
        document["token"] = create_first_token(service)
        sentences.append(f"token: {document['token']}")
    sentences.append(f"serving {settings.data} at {document['url']}")
    output_for(as_json=as_json).show(Answer(document=document, sentences=sentences))
    run(create_app(settings, service=service), listening)
