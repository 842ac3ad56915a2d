"""The Java that Spark runs on."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from anabranch.errors import MissingDependencyError

__all__ = ["require_java"]

_OLDEST = 17
_INSTALL = (
    f"install Java {_OLDEST} or newer, such as Debian's openjdk-17-jre-headless, and let JAVA_HOME name it if it is "
    "not on the PATH"
)


def require_java(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse to start Spark without a Java that it can use; its own message would be a stack trace."""
    home = environment.get("JAVA_HOME")
    wanted = os.path.join(home, "bin", "java") if home else "java"
    program = shutil.which(wanted, path=environment.get("PATH", os.defpath))
    if program is None:
        where = f"JAVA_HOME is {home!r}, and has no bin/java" if home else "there is no java on the PATH"
        raise MissingDependencyError(f"Spark needs Java, and {where}", hint=_INSTALL)
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found above
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None or int(found[1]) < _OLDEST:
        version = found[1] if found else "of an unknown version"
        raise MissingDependencyError(
            f"Spark needs Java {_OLDEST} or newer, and {program!r} is {version}", hint=_INSTALL
        )
