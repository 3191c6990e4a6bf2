"""HTTP of the console: what is read of a request, and what is refused."""

import pytest

from central.server.web.web_request import Request, RequestRefused, parse_head, render


def head(first: str = "GET / HTTP/1.1", **headers: str) -> bytes:
    lines = [
        first,
        *(f"{name}: {value}" for name, value in {"Host": "localhost:9480", **headers}.items()),
    ]
    return "\r\n".join(lines).encode()


def test_a_request_with_its_token() -> None:
    found = parse_head(
        head("GET /api/nodes?limit=10&after=n-1 HTTP/1.1", Authorization="Bearer abc")
    )
    assert found == Request("/api/nodes", {"limit": "10", "after": "n-1"}, "abc")
    assert parse_head(head(Authorization="Basic abc")).token == ""


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:1", "[::1]:80", "[::1]", "localhost:9480"]
)
def test_this_machine_is_a_host(host: str) -> None:
    assert parse_head(head(Host=host)).path == "/"


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:9480", "localhost.evil.example:80", "10.0.0.1:1"]
)
def test_a_name_of_another_site_is_refused(host: str) -> None:
    with pytest.raises(RequestRefused, match="localhost") as refused:
        parse_head(head(Host=host))
    assert refused.value.status == 421


@pytest.mark.parametrize(
    ("first", "status"),
    [("PUT / HTTP/1.1", 405), ("GET http://x/ HTTP/1.1", 400), ("GET / SPDY/3", 400), ("rubbish", 400), ("", 400),
     ("GET /?" + "&".join(f"a{at}=1" for at in range(99)) + " HTTP/1.1", 400)],
)  # fmt: skip
def test_what_is_no_get_is_refused(first: str, status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_head(head(first))
    assert refused.value.status == status


@pytest.mark.parametrize("text", ["-1", "x", "1e3", "11", "9" * 99, "\u0663"])
def test_numbers_are_bounded(text: str) -> None:
    with pytest.raises(RequestRefused, match="limit: must be a whole number from 0 to 10"):
        Request("/", {"limit": text}).number("limit", 5, 10)
    assert (
        Request("/", {"limit": "10"}).number("limit", 5, 10),
        Request("/").number("limit", 5, 10),
    ) == (10, 5)


def test_answers_allow_nothing_but_our_own_files() -> None:
    top, _, body = render(200, b"hi", "text/html").partition(b"\r\n\r\n")
    assert body == b"hi"
    for line in (
        b"default-src 'none'",
        b"script-src 'self'",
        b"frame-ancestors 'none'",
        b"nosniff",
        b"no-store",
    ):
        assert line in top
    assert b"unsafe" not in top
