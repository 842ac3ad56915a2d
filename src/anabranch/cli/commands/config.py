"""`anabranch config`: settings of this folder and of the user."""

from typing import Annotated

from anabranch.cli.command import SERVICE, Here, add_group, command, group
from anabranch.cli.options import argument, flag
from anabranch.cli.output import Answer
from anabranch.cli.tables import Table
from anabranch.config import Source, load_config, write_config
from anabranch.errors import NotFoundError

app = group()
settings = add_group(app, "config", help="List, get, set and unset settings, such as your name.")

Name = Annotated[str, argument("NAME", "actor, repository, or storage.OPTION such as storage.aws_region.")]
OfUser = Annotated[bool, flag("--user", "Use the settings of the user, not of this folder.")]


@command(settings, "list", "config list", "config --json", on=SERVICE)
def list_(here: Here) -> Answer:  # noqa: ARG001 - every command gets it
    """List all settings and where they come from."""
    found = load_config()
    rows = [(name, one.value, one.source.value, str(one.file)) for name, one in found.items()]
    document = {name: {"value": one.value, "source": one.source, "file": str(one.file)} for name, one in found.items()}
    return Answer({"settings": document}, tables=[Table(("setting", "value", "of", "file"), rows, empty="no settings")])


@command(settings, "get", "config get actor", on=SERVICE)
def get(here: Here, name: Name) -> Answer:  # noqa: ARG001 - every command gets it
    """Print the value of a setting."""
    found = load_config().get(name)
    if found is None:
        raise NotFoundError(f"{name!r} is not set", hint="list the settings with 'anabranch config'")
    return Answer({"name": name, "value": found.value, "source": found.source}, found.value)


@command(settings, "set", "config set actor ada --user", "config set storage.aws_region us-east-1", on=SERVICE)
def set_(
    here: Here,  # noqa: ARG001 - every command gets it
    name: Name,
    value: Annotated[str, argument("VALUE", "The new value.")],
    user: OfUser = False,
) -> Answer:
    """Set a setting of this folder, or of the user."""
    file = write_config(name, value, source=Source.USER if user else Source.FOLDER)
    return Answer({"name": name, "value": value, "file": str(file)}, f"set {name} to {value} in {file}")


@command(settings, "unset", "config unset actor --user", on=SERVICE)
def unset(here: Here, name: Name, user: OfUser = False) -> Answer:  # noqa: ARG001 - every command gets it
    """Remove a setting of this folder, or of the user."""
    file = write_config(name, None, source=Source.USER if user else Source.FOLDER)
    return Answer({"name": name, "file": str(file)}, f"removed {name} from {file}")
