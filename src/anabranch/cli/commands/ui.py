"""`anabranch ui`: the web UI of one repository, on this machine."""

import webbrowser
from typing import Annotated

import typer

from anabranch.cli.arguments import Actor, AsJson, Repo, StorageOptions
from anabranch.cli.output import Answer, output_for
from anabranch.cli.session import open_session
from anabranch.errors import MissingDependencyError

__all__ = ["ui"]

_HOST = "127.0.0.1"


def ui(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0 chooses a free port.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Open the web UI of a repository, until it is interrupted.

    Only this machine reaches it. The address that is printed works once.
    """
    try:
        import uvicorn

        from anabranch.server.connections import listen
        from anabranch.server.ui.local import ENTER_PATH, create_local_app
        from anabranch.server.ui.session import OneTimeToken
    except ModuleNotFoundError as err:
        raise MissingDependencyError(f"{err.name} is not installed", hint="pip install 'anabranch[server]'") from err
    repository = open_session(repo=repo, storage_options=storage_option, actor=actor).repository
    listening = listen(host=_HOST, port=port)
    bound, token = listening.getsockname()[1], OneTimeToken()
    app = create_local_app(repository, port=bound, token=token)
    url = f"http://{_HOST}:{bound}{ENTER_PATH}?token={token.value}"
    document = {"repository": repository.uri, "url": url}
    output_for(as_json=as_json).show(Answer(document=document, sentences=[f"open {url}", "stop it with Ctrl+C"]))
    if not no_browser:
        webbrowser.open(url)
    # Without an access log: it would contain the token.
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none")
    uvicorn.Server(config).run(sockets=[listening])
