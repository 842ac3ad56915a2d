"""Storage options: they use Lance's names, are translated for obstore, and secrets are removed from messages."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from urllib.parse import quote

from anabranch.errors import InvalidInputError

# An option of Anabranch. It is passed with the others, so that every part that opens a store uses it.
DURABILITY = "durability"
# The maximum difference in seconds between the clocks of a writer and of the store. Also an option of Anabranch.
CLOCK_TOLERANCE = "clock_tolerance_seconds"
# Five minutes: machines with a time service differ by far less.
_DEFAULT_TOLERANCE = "300"


def checked_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of the storage options that a caller passed."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidInputError(
            f"storage_options must be a dict, got {type(options).__name__}", hint="pass a dict of strings"
        )
    return dict(options)


class Durability(StrEnum):
    """What a write on a local disk waits for. Object stores are durable by themselves."""

    FULL = "full"  # the disk: an acknowledged write survives a power loss
    NONE = "none"  # nothing: an acknowledged write survives the crash of a process, not that of the machine


def durability_of(options: Mapping[str, str]) -> Durability:
    given = options.get(DURABILITY, Durability.FULL)
    try:
        return Durability(given)
    except ValueError:
        raise InvalidInputError(
            f"durability must be 'full' or 'none', got {given!r}", hint="use 'full', which is the default"
        ) from None


def clock_tolerance_of(options: Mapping[str, str]) -> timedelta:
    given = options.get(CLOCK_TOLERANCE, _DEFAULT_TOLERANCE)
    if not re.fullmatch("[0-9]{1,9}", given):
        raise InvalidInputError(
            f"storage option {CLOCK_TOLERANCE!r} must be an integer, got {given!r}", hint="pass a number of seconds"
        )
    return timedelta(seconds=int(given))


_FLAGS = frozenset({"allow_http", "allow_invalid_certificates", "http1_only", "http2_only"})
# Lance reads these directly. obstore expects them as client options.
_CLIENT_KEYS = _FLAGS | {"connect_timeout", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "user_agent"}
# Options of Lance and of Anabranch, which the object store does not know.
_LANCE_KEYS = re.compile(
    rf"download_retry_count|lance_.*|headers\..*|client_max_retries|client_retry_timeout|{DURABILITY}|{CLOCK_TOLERANCE}"
)
# Wide on purpose: a value that is hidden needlessly does less harm than a secret in a log.
_SECRET_KEYS = re.compile(
    r"key|secret|token|password|credential|sas|signature|service_account|^headers\.", re.IGNORECASE
)
# An endpoint without a scheme makes the clients panic, so it is checked here.
_ENDPOINT_KEYS = frozenset({"endpoint", "aws_endpoint", "aws_endpoint_url", "endpoint_url", "azure_endpoint"})
_OURS = frozenset({DURABILITY, CLOCK_TOLERANCE})
_NUMBER_KEYS = frozenset({"client_max_retries", "client_retry_timeout"})
# Lance retries for three minutes by default. A wrong endpoint should be reported sooner.
_MAX_RETRIES = 3
_RETRY_SECONDS = 20


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of an obstore client."""

    config: dict[str, str] = field(repr=False)
    client_options: dict[str, str | bool] = field(repr=False)
    max_retries: int
    retry_timeout: timedelta


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    _check(options)
    config: dict[str, str] = {}
    client: dict[str, str | bool] = {}
    for key, value in options.items():
        name = key.lower()
        # Lance accepts these names with and without the prefix of a store.
        bare = name.removeprefix("aws_").removeprefix("google_").removeprefix("azure_")
        if bare in _CLIENT_KEYS:
            client[bare] = value.lower() in {"true", "1"} if bare in _FLAGS else value
        elif name == "timeout" or bare == "request_timeout":
            client["timeout"] = value
        elif not _LANCE_KEYS.fullmatch(name):
            config[name] = value
    return ClientSettings(
        config=config,
        client_options=client,
        max_retries=int(options.get("client_max_retries", _MAX_RETRIES)),
        retry_timeout=timedelta(seconds=float(options.get("client_retry_timeout", _RETRY_SECONDS))),
    )


def lance_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for Lance, with a shorter default retry time than Lance's three minutes."""
    _check(options)
    retries = {"client_max_retries": str(_MAX_RETRIES), "client_retry_timeout": str(_RETRY_SECONDS)}
    return {**retries, **{key: value for key, value in options.items() if key not in _OURS}}


def _check(options: Mapping[str, str]) -> None:
    """Raise InvalidInputError for options that would make obstore or Lance panic instead of raising an error."""
    durability_of(options)
    for key, value in options.items():
        if not all(isinstance(part, str) for part in (key, value)):
            raise InvalidInputError(
                f"storage option {key!r} must be a string, got {type(value).__name__}",
                hint="pass keys and values as strings",
            )
        name = key.lower()
        if name in _ENDPOINT_KEYS and not re.match(r"https?://[^/]", value):
            raise InvalidInputError(
                f"storage option {key!r} must be a URL, got {redact(value, options)!r}",
                hint="start it with http:// or https://",
            )
        if name in _NUMBER_KEYS and not re.fullmatch("[0-9]{1,9}", value):
            raise InvalidInputError(
                f"storage option {key!r} must be an integer, got {value!r}", hint="pass a number of at most 9 digits"
            )


def redact(text: str, options: Mapping[str, str]) -> str:
    """Return the text without credentials: secret option values, and the login and query of URLs."""
    # Very short values, such as flags, would be removed from every word of a message.
    secrets = {value for key, value in options.items() if _SECRET_KEYS.search(key) and len(value) > 2}
    # Replace the longest first: one secret may be the start of another.
    for value in sorted(secrets | {quote(value, safe="") for value in secrets}, key=len, reverse=True):
        text = text.replace(value, "***")
    # A login can be part of an endpoint, and a signed URL has its signature in the query.
    text = re.sub(r"(https?://)[^\s/@\"']*@", r"\1…@", text)
    return re.sub(r"(https?://[^\s?\"']+)\?[^\s\"')]*", r"\1", text)
