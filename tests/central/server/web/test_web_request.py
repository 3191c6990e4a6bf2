"""HTTP of the console: what is read of a request, and what is refused."""

import pytest

from central.server.web.web_request import SECURITY, Request, bearer_token, check
from protos.common.http_server import HttpRequest, RequestRefused


def asked(method: str = "GET", **headers: str) -> HttpRequest:
    return HttpRequest(method, "/", {}, headers={"Host": "localhost:9480", **headers})


def test_the_token_of_a_request() -> None:
    assert bearer_token(asked(Authorization="Bearer abc")) == "abc"
    assert bearer_token(asked(Authorization="bearer  abc ")) == "abc"
    assert bearer_token(asked(Authorization="Basic abc")) == ""
    assert bearer_token(asked()) == ""


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:1", "[::1]:80", "[::1]", "localhost:9480"]
)
def test_this_machine_is_a_host(host: str) -> None:
    check(asked(Host=host))


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:9480", "localhost.evil.example:80", "10.0.0.1:1"]
)
def test_a_name_of_another_site_is_refused(host: str) -> None:
    with pytest.raises(RequestRefused, match="localhost") as refused:
        check(asked(Host=host))
    assert refused.value.status == 421


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "get"])
def test_what_is_no_get_is_refused(method: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        check(asked(method))
    assert refused.value.status == 405


@pytest.mark.parametrize("text", ["-1", "x", "1e3", "11", "9" * 99, "\u0663"])
def test_numbers_are_bounded(text: str) -> None:
    with pytest.raises(RequestRefused, match="limit: must be a whole number from 0 to 10"):
        Request("/", {"limit": text}).number("limit", 5, 10)
    assert (
        Request("/", {"limit": "10"}).number("limit", 5, 10),
        Request("/").number("limit", 5, 10),
    ) == (10, 5)


def test_answers_allow_nothing_but_our_own_files() -> None:
    policy = SECURITY["Content-Security-Policy"]
    for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert (SECURITY["X-Content-Type-Options"], SECURITY["Cache-Control"]) == (
        "nosniff",
        "no-store",
    )
