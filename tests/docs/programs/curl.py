"""A small `curl` for machines that have none, or an old one: it takes what the pages use, and nothing else."""

import argparse
import sys
from collections.abc import Sequence

import httpx

# The exit codes are those of curl, too.
_UNREACHABLE, _HTTP_ERROR = 7, 22


def main() -> int:
    """Send one request, and write what comes back as it comes back."""
    options = _options(sys.argv[1:])
    try:
        # The server is on this machine: no proxy, no certificates.
        with httpx.Client(trust_env=False, verify=False, timeout=60) as client:  # noqa: S501
            answer = client.send(_request(options))
    except httpx.TransportError as error:
        if options.show_error or not options.silent:
            sys.stderr.write(f"curl: ({_UNREACHABLE}) {error}\n")
        return _UNREACHABLE
    sys.stdout.buffer.write(answer.content)
    return _HTTP_ERROR if options.fail_with_body and answer.is_error else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="curl", allow_abbrev=False, add_help=False)
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("--show-error", action="store_true")
    parser.add_argument("--fail-with-body", action="store_true")
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--request", choices=["DELETE"])
    parser.add_argument("--get", action="store_true")
    parser.add_argument("--data", action="append", default=[])
    parser.add_argument("--json")
    parser.add_argument("url")
    options = parser.parse_args(arguments)
    if options.data and not options.get:
        parser.error("--data without --get would send a form, which no page does")
    if sum((options.get, options.json is not None, options.request is not None)) > 1:
        parser.error("--get, --json and --request each say which request to make")
    if any(text.startswith("@") for text in (*options.data, options.json or "")):
        parser.error("data from files are not read")
    return options


def _request(options: argparse.Namespace) -> httpx.Request:
    headers = {name: value.strip() for name, _, value in (each.partition(":") for each in options.header)}
    url = "?".join([options.url, *filter(None, ["&".join(options.data)])])
    if options.json is None:
        return httpx.Request(options.request or "GET", url, headers=headers)
    headers |= {"Content-Type": "application/json", "Accept": "application/json"}
    return httpx.Request("POST", url, headers=headers, content=options.json.encode())


if __name__ == "__main__":
    sys.exit(main())
