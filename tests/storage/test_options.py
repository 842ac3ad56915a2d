"""Storage options: one spelling for Lance and obstore, and no credential in any message."""

import logging
import traceback
from collections.abc import Callable

import lance
import pyarrow as pa
import pytest

from anabranch.errors import (
    InvalidInputError,
    InvalidPathError,
    StorageDeniedError,
    StorageError,
    StorageUnavailableError,
)
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.storage import ObjectStore, open_store
from anabranch.storage.options import client_settings, lance_options, redact
from tests.conftest import Location

SECRET = "love/lace+secret"  # noqa: S105
CLOSED_PORT = {
    "aws_endpoint": "http://127.0.0.1:9",
    "aws_access_key_id": "ada-access",
    "aws_secret_access_key": SECRET,
    "aws_region": "us-east-1",
    "allow_http": "true",
    "client_max_retries": "1",
}
REQUESTS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("x"),
    "head": lambda store: store.head("x"),
    "stream": lambda store: next(store.stream("x")),
    "put": lambda store: store.put("x", b"1"),
    "put_stream": lambda store: store.put_stream("x", iter([b"1"])),
    "put_if_absent": lambda store: store.put_if_absent("x", b"1"),
    "list": lambda store: list(store.list()),
    "list_folders": lambda store: store.list_folders(),
    "delete": lambda store: store.delete("x"),
}


def whole_story(error: BaseException) -> str:
    """All that a program could show of an error: message, repr, and the traceback with its causes."""
    return "\n".join([str(error), repr(error), *traceback.format_exception(error)])


def bare(options: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix("aws_"): value for key, value in options.items()}


SPELLINGS: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    "aws_*": lambda options: options,
    "bare": bare,
    "upper case": lambda options: {key.upper(): value for key, value in options.items()},
    "with patience": lambda options: {
        **bare(options),
        "client_max_retries": "2",
        "client_retry_timeout": "10",
        "request_timeout": "20s",
        "connect_timeout": "5s",
        "pool_idle_timeout": "10s",
    },
    "Lance's own": lambda options: {**options, "download_retry_count": "2", "user_agent": "anabranch"},
}


@pytest.mark.s3
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_spelling_serves_lance_and_the_store(location: Location, spelling: str) -> None:
    options = SPELLINGS[spelling](location.storage_options)
    given_to_lance = None if location.is_local else lance_options(options)
    lance.write_dataset(pa.table({"id": [1]}), location / "t.lance", storage_options=given_to_lance)
    assert "_versions" in open_store(location / "t.lance", options).list_folders()
    assert Home.at(location / "t.lance", options).open().count_rows() == 1


@pytest.mark.parametrize("request_name", REQUESTS)
def test_an_unreachable_endpoint_is_worth_another_try(request_name: str) -> None:
    with pytest.raises(StorageUnavailableError, match=r"'s3://lake/a.* cannot be reached") as failure:
        REQUESTS[request_name](open_store("s3://lake/a", CLOSED_PORT))
    assert failure.value.retryable
    assert "check the endpoint" in failure.value.hint


def test_an_endpoint_unreachable_for_lance_is_the_same_error() -> None:
    with pytest.raises(StorageUnavailableError) as failure:
        Home.at("s3://lake/t.lance", CLOSED_PORT).open()
    assert SECRET not in whole_story(failure.value)


@pytest.mark.s3
@pytest.mark.xdist_group("s3")
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_wrong_secret_is_denied_and_not_shown(
    s3_options: dict[str, str], request_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {**s3_options, "aws_secret_access_key": SECRET}
    with pytest.raises(StorageDeniedError, match=r"refused access to 's3://.*; check the credentials") as failure:
        REQUESTS[request_name](open_store("s3://lake", options))
    assert_keeps_secrets(whole_story(failure.value) + caplog.text, options)


@pytest.mark.s3
@pytest.mark.xdist_group("s3")
def test_a_wrong_secret_is_not_shown_by_lance_either(s3_options: dict[str, str]) -> None:
    options = {**s3_options, "aws_secret_access_key": SECRET}
    with pytest.raises(StorageDeniedError) as failure:
        Home.at("s3://lake/t.lance", options).open()
    assert_keeps_secrets(whole_story(failure.value), options)


@pytest.mark.parametrize(
    ("uri", "options", "problem"),
    [
        ("s3://lake", {"aws_bogus": SECRET}, "'aws_bogus' is not valid"),
        ("s3://lake", {"bogus_key": SECRET}, "'bogus_key' is not valid"),
        ("gs://lake", {"bogus_key": SECRET}, "'bogus_key' is not valid"),
        ("az://lake", {"bogus_key": SECRET}, "'bogus_key' is not valid"),
        ("az://lake", {}, "Account must be specified"),
        ("az://lake", {"account_name": "ada", "account_key": "not base 64!"}, "Invalid Access Key"),
        ("gs://lake", {"google_service_account_key": "{" + SECRET}, "service account"),
        ("gs://lake", {"google_service_account": "/no/such/file"}, "gs://lake"),
        (
            "s3://lake",
            {**CLOSED_PORT, "aws_endpoint": "127.0.0.1:9"},
            "'aws_endpoint' must be a URL, got '127.0.0.1:9'",
        ),
        ("s3://lake", {**CLOSED_PORT, "aws_endpoint": f"ada:{SECRET}@127.0.0.1:9"}, "'aws_endpoint' must be a URL"),
        (
            "s3://lake",
            {**CLOSED_PORT, "client_max_retries": "many"},
            "'client_max_retries' must be an integer, got 'many'",
        ),
        (
            "s3://lake",
            {**CLOSED_PORT, "client_retry_timeout": "-1"},
            "'client_retry_timeout' must be an integer, got '-1'",
        ),
        ("s3://lake", {**CLOSED_PORT, "allow_http": True}, "'allow_http' must be a string, got bool"),
        ("s3://lake", {**CLOSED_PORT, "request_timeout": "soon"}, 'failed to parse "soon"'),
        ("s3://lake", {**CLOSED_PORT, "connect_timeout": "soon"}, 'failed to parse "soon"'),
    ],
)
def test_a_wrong_option_is_named_when_the_store_is_used(uri: str, options: dict[str, str], problem: str) -> None:
    store = open_store(uri, options)
    for request in REQUESTS.values():
        with pytest.raises(InvalidInputError, match="option") as failure:
            request(store)
        assert problem in failure.value.problem
        assert_keeps_secrets(whole_story(failure.value), options)


@pytest.mark.parametrize(
    "options", [{"aws_endpoint": "127.0.0.1:9"}, {"client_max_retries": "many"}, {"allow_http": True}, {7: "x"}]
)
def test_a_wrong_option_is_named_before_lance_sees_it(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="storage option"):
        Home.at("s3://lake/t.lance", options).open()


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_opening_a_remote_store_requests_nothing(scheme: str) -> None:
    store = open_store(f"{scheme}://lake/a/", {"no_such_option": "x"})
    assert store.uri == f"{scheme}://lake/a"
    assert repr(store) == f"ObjectStore('{scheme}://lake/a')"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("gs://lake", {"google_skip_signature": "true", "google_base_url": "http://127.0.0.1:9", "allow_http": "true"}),
        ("az://lake", {"account_name": "ada", "azure_endpoint": "http://127.0.0.1:9", "azure_skip_signature": "true"}),
        ("az://lake", {"account_name": "ada", "sas_token": f"sig={SECRET}", "endpoint": "http://127.0.0.1:9"}),
    ],
)
def test_google_and_azure_take_their_options(uri: str, options: dict[str, str]) -> None:
    patience = {"client_max_retries": "0", "allow_http": "true"}
    with pytest.raises(StorageUnavailableError, match=f"'{uri}/x' cannot be reached") as failure:
        open_store(uri, {**options, **patience}).get("x")
    assert_keeps_secrets(whole_story(failure.value), options)


def assert_keeps_secrets(text: str, options: dict[str, str]) -> None:
    secrets = {value for key, value in options.items() if "secret" in key or "token" in key or key.endswith("_key")}
    for secret in {SECRET, *secrets}:
        assert secret not in text


def test_nothing_that_holds_options_shows_them() -> None:
    store, home = open_store("s3://lake", CLOSED_PORT), Home.at("s3://lake", CLOSED_PORT)
    for value in (store, home, client_settings(CLOSED_PORT)):
        assert SECRET not in repr(value) + str(value)


def test_a_uri_with_a_login_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidPathError) as failure:
        open_store(f"s3://ada:{SECRET}@lake/x")
    assert SECRET not in whole_story(failure.value)


@pytest.mark.parametrize(
    ("text", "options", "shown"),
    [
        ("key abcdef, id abc", {"secret": "abcdef", "access_key_id": "abc"}, "key ***, id ***"),
        ("sig a%2Fb%2B", {"sas_token": "a/b+"}, "sig ***"),
        ("see http://h/x?sig=abc&x=1 now", {}, "see http://h/x now"),
        ("see https://ada:pw@h/x now", {}, "see https://…@h/x now"),
        ("in us-east-1", {"region": "us-east-1"}, "in us-east-1"),
        ("empty", {"token": ""}, "empty"),
        ("Bearer abc", {"headers.Authorization": "Bearer abc"}, "***"),
    ],
)
def test_redacting_takes_out_credentials_and_nothing_else(text: str, options: dict[str, str], shown: str) -> None:
    assert redact(text, options) == shown


def test_lance_waits_as_long_as_we_do_by_default() -> None:
    assert lance_options({})["client_max_retries"] == "3"
    assert lance_options({"client_max_retries": "9"})["client_max_retries"] == "9"
    assert client_settings({"client_max_retries": "9"}).max_retries == 9


def test_a_credential_at_the_end_of_a_long_message_is_not_cut_in_two() -> None:
    options = {"aws_secret_access_key": SECRET}
    for length in range(480, 501):
        with pytest.raises(StorageError) as failure, lance_errors("t.lance", options):
            raise OSError("x" * length + SECRET)
        assert SECRET[:3] not in failure.value.problem
