"""`anabranch ui` and `anabranch serve`: the web UI and the HTTP service."""

import gc
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch.cli.command import SERVICE, WRITES, Here, command, group
from anabranch.cli.options import flag, option
from anabranch.cli.output import Answer
from anabranch.errors import MissingDependencyError

app = group()

_HOST = "127.0.0.1"


@command(app, "ui", "ui", "ui --repo s3://bucket/lake --no-browser", on=WRITES)
def ui(
    here: Here,
    port: int = option("--port", "PORT", "Port to listen on. 0 chooses a free port.", default=0, min=0, max=65535),
    no_browser: bool = flag("--no-browser", "Do not open a browser."),
) -> None:
    """Open the web UI of a repository. Stop it with Ctrl-C.

    Only this machine can open it. The printed address works once.
    """
    try:
        import uvicorn

        from anabranch.server.app import listen
        from anabranch.server.ui.local import ENTER_PATH, create_local_app
        from anabranch.server.ui.requests import OneTimeToken
    except ModuleNotFoundError as err:
        raise MissingDependencyError(f"{err.name} is not installed", hint="pip install 'anabranch[server]'") from err
    repository = here.repository
    # Bound before the address is printed: with port 0 only the socket knows the port, and no other process can take
    # it.
    listening = listen(host=_HOST, port=port)
    bound, token = listening.getsockname()[1], OneTimeToken()
    local_app = create_local_app(repository, port=bound, token=token)
    url = f"http://{_HOST}:{bound}{ENTER_PATH}?token={token.value}"
    here.output.show(Answer({"repository": repository.uri, "url": url}, f"open {url}", "stop it with Ctrl-C"))
    if not no_browser:
        webbrowser.open(url)
    # Pages need Lance, which is loaded while the browser starts. What is loaded now lives as long as the process, so
    # that collections need not visit it: each would take as long as a page.
    import anabranch.format.dataset  # noqa: F401

    gc.freeze()
    # Without an access log: it would contain the token.
    config = uvicorn.Config(local_app, log_level="warning", access_log=False, server_header=False, ws="none")
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


@command(app, "serve", "serve --data ./data --init", "serve --data ./data --port 8080", on=SERVICE)
def serve(
    here: Here,
    data: Path = option("--data", "DIR", "Folder of the projects. It is created if it does not exist.", default=...),
    init: bool = flag("--init", "Create an administrator token, and print it once."),
    rebuild_metadata: bool = flag(
        "--rebuild-metadata", "Rebuild metadata.duckdb from the repositories first. All tokens are lost."
    ),
    host: str = option("--host", "HOST", "Address to listen on.", default="127.0.0.1"),
    port: int = option("--port", "PORT", "Port to listen on.", default=8000, min=1, max=65535),
) -> None:
    """Serve projects over HTTP, with a web UI. Stop it with Ctrl-C."""
    try:
        from anabranch.server.app import create_app, listen
        from anabranch.server.app import serve as run
        from anabranch.server.service import create_first_token, open_service
        from anabranch.server.service import rebuild_metadata as rebuild
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
    # Before the token is created: if the port is taken, no token is created that is never shown.
    listening = listen(host=host, port=port)
    if init:
        document["token"] = create_first_token(service)
        sentences.append(f"token: {document['token']}")
    elif not service.tokens.list_all():
        sentences.append("note: there is no token yet, so no client can sign in; stop it, and start it with --init")
    sentences.append(f"serving {settings.data} at {document['url']}")
    if host not in (_HOST, "localhost", "::1"):
        sentences.append("note: other machines can connect, and HTTP sends tokens as plain text; use a proxy with TLS")
    here.output.show(Answer(document, *sentences))
    run(create_app(settings, service=service), listening)
