"""Locations, with one spelling for each.

A local location is an absolute POSIX path. All others are `scheme://bucket/path`. There is no trailing slash.
"""

import os
import posixpath
import re
from typing import Any
from urllib.parse import unquote

from anabranch.errors import InvalidPathError

REMOTE_SCHEMES = frozenset({"s3", "gs", "az"})
# Segments of a path that name no object. obstore strips slashes at both ends, and would then use another object.
NO_NAMES = frozenset({"", ".", ".."})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]*")


def normalise_uri(text: str | os.PathLike[str]) -> str:
    """Return the one spelling of a location. Raise InvalidPathError if no store supports it."""
    uri = _text_of(text)
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return _normalise_local(uri)
    rest = uri[scheme.end() :]
    match scheme.group(1).lower():
        case "file":
            host, slash, path = rest.partition("/")
            if host not in {"", "localhost"} or not slash:
                raise InvalidPathError(
                    f"path {_without_login(uri)!r} names a host, and only local files are supported",
                    hint="write file:///folder",
                )
            # Only a file URL has percent escapes. In a plain path `%` is a character of the name.
            return _normalise_local(slash + unquote(path))
        case name if name in REMOTE_SCHEMES:
            return _normalise_remote(name, rest)
        case name:
            raise InvalidPathError(
                f"path {_without_login(uri)!r} has the unsupported scheme {name!r}",
                hint=f"use a local folder, file:// or one of {', '.join(sorted(REMOTE_SCHEMES))}",
            )


def _text_of(path: Any) -> str:
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidPathError(f"path must be a string, got {path!r}", hint="pass a folder or an s3:// URI")
    return text


def _normalise_local(path: str) -> str:
    if not path.strip() or "\0" in path:
        raise InvalidPathError(
            f"path {path!r} is empty or contains a NUL character", hint="pass a folder or an s3:// URI"
        )
    if "?" in path:  # Lance would treat it as the end of a URL's path, and write branches to another folder.
        raise InvalidPathError(f"path {path!r} contains '?'", hint="rename the folder")
    # A shell replaces it, but not in --repo=~/lake, and Python does not.
    if path == "~" or path.startswith("~/"):
        raise InvalidPathError(
            f"path {path!r} begins with '~', which is not replaced here", hint="write the whole path"
        )
    # POSIX allows a special meaning for two leading slashes. It is not used here.
    return re.sub("^/+", "/", os.path.abspath(path))


def _normalise_remote(scheme: str, rest: str) -> str:
    bucket, _, path = rest.partition("/")
    shown = _without_login(f"{scheme}://{rest.partition('?')[0]}")
    if "@" in bucket:
        raise InvalidPathError(f"path {shown!r} contains credentials", hint="pass them as storage options")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidPathError(f"path {shown!r} has no bucket, or an invalid one", hint=f"write {scheme}://bucket/path")
    # Lance treats the path as a URL: it would decode %41 and drop what follows '?' or '#'.
    if special := re.search("[?#%]", path):
        raise InvalidPathError(f"path {shown!r} contains {special[0]!r}", hint="rename the folder")
    segments = [segment for segment in path.split("/") if segment]
    if any(segment in {".", ".."} for segment in segments):
        raise InvalidPathError(f"path {shown!r} contains '.' or '..'", hint="write the full path")
    return "/".join([f"{scheme}://{bucket}", *segments])


def _without_login(uri: str) -> str:
    return re.sub(r"//.*@", "//…@", uri)


def follow_links(uri: str) -> str:
    """Return the target of a local path with its links resolved, for comparisons. Stored paths are not resolved."""
    return os.path.realpath(uri) if is_local(uri) else uri


def is_local(uri: str) -> bool:
    return uri.startswith("/") or _SCHEME.match(uri) is None


def split_uri(uri: str) -> tuple[str, str, str]:
    """Return the scheme, bucket and path of a normalised remote URI."""
    scheme, _, rest = uri.partition("://")
    bucket, _, path = rest.partition("/")
    return scheme, bucket, path


def join_uri(root: str, *parts: str) -> str:
    return "/".join([root.rstrip("/"), *parts])


def invalid_path(path: str, *, root: str) -> InvalidPathError:
    """Return the error for a path that does not name an object below a root."""
    return InvalidPathError(
        f"the path {path!r} is not a valid path below {root!r}", hint="use a relative path without '.' and '..'"
    )


def relative_to(uri: str, root: str) -> str | None:
    """Return the path of `uri` below `root`, '' for the root itself, or None if it is not below the root."""
    if uri == root:
        return ""
    # With the slash: `/lake2` is not below `/lake`.
    prefix = root.rstrip("/") + "/"
    return posixpath.normpath(uri[len(prefix) :]) if uri.startswith(prefix) else None
