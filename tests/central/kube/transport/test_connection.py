"""Responses as bytes, complete and broken, as servers and proxies send them."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from central.kube.transport.connection import TooLong
from central.kube.transport.http_client import Client, StatusError, Unreachable, connect
from tests.central.kube.api_fixtures import kubeconfig

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def answering(
    tmp_path: Path, *connections: Sequence[bytes]
) -> Iterator[tuple[Client, list[bytes]]]:
    """Each connection answers one request after the other, and is closed after its last answer; b""
    closes without one."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve() -> None:
        for answers in connections:
            with listener.accept()[0] as peer:
                for answer in answers:
                    asked.append(peer.recv(65536))
                    peer.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        client = connect(kubeconfig(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}"))
        yield client, asked
        client.close()
        thread.join(5)


def test_a_request_is_valid_http(tmp_path: Path) -> None:
    with answering(tmp_path, [OK, OK]) as (client, asked):
        client.request("POST", "/x?y=1", b"[1]", timeout_s=5)
        client.request("GET", "/x")
    head, _, body = asked[0].partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    assert (line, body) == (b"POST /x?y=1 HTTP/1.1", b"[1]")
    assert headers[0].startswith(b"Host: 127.0.0.1:")
    assert b"Content-Length: 3" in headers
    assert asked[1].startswith(b"GET /x HTTP/1.1\r\n")
    assert b"Content-Length" not in asked[1]


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK,
    ],
)
def test_every_form_of_response_keeps_the_connection(tmp_path: Path, answer: bytes) -> None:
    with answering(tmp_path, [answer, OK]) as (client, asked):
        assert client.get("/x") == {}
        assert client.get("/x") == {}
        assert len(asked) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n{}",  # to the end of the connection
    ],
)
def test_a_closing_connection_is_not_reused(tmp_path: Path, answer: bytes) -> None:
    with answering(tmp_path, [answer], [OK]) as (client, _):
        assert client.get("/x") == {}
        assert client.get("/x") == {}


def test_a_connection_closed_while_idle_is_replaced(tmp_path: Path) -> None:
    with answering(tmp_path, [OK, b""], [OK]) as (client, asked):
        assert client.get("/x") == {}
        assert client.get("/x") == {}
        assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "is truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "is truncated"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-", "is truncated"),
        (b"", "closed the connection"),
    ],
)
def test_an_invalid_response_is_unreachable(tmp_path: Path, answer: bytes, sentence: str) -> None:
    with (
        answering(tmp_path, [answer]) as (client, _),
        pytest.raises(Unreachable, match=f"http://127.0.0.1:[0-9]+: .*{sentence}"),
    ):
        client.request("GET", "/x")


def test_an_answer_with_too_many_bytes_is_not_read_to_its_end(tmp_path: Path) -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{} \r\n"
    with answering(tmp_path, [OK, OK], [endless], [OK]) as (client, asked):
        assert client.get("/x", most_bytes=2) == {}
        with pytest.raises(TooLong):
            client.get("/x", most_bytes=1)
        with pytest.raises(TooLong):
            client.get("/y", most_bytes=2)
        assert client.get("/z") == {}
    assert [line.split()[1] for line in asked] == [b"/x", b"/x", b"/y", b"/z"]


def test_lines_are_complete_however_they_arrive(tmp_path: Path) -> None:
    chunks = (b'{"a":', b"1}\n\n", b'{"b":2}\n{"c"', b":3}\n", b'{"d":4}')
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (
        answering(tmp_path, [head + body + b"0\r\n\r\n"]) as (client, _),
        client.stream("/x?watch=1", 5) as stream,
    ):
        assert list(stream) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    with (
        answering(tmp_path, [head + body]) as (client, _),
        client.stream("/x?watch=1", 5) as stream,
        pytest.raises(Unreachable, match="is truncated"),
    ):
        list(stream)


def test_a_rejected_watch_says_why(tmp_path: Path) -> None:
    body = b'{"reason":"Expired","message":"too old"}'  # no line of its own
    head = b"HTTP/1.1 410 Gone\r\nContent-Length: %d\r\n\r\n" % len(body)
    with (
        answering(tmp_path, [head + body]) as (client, _),
        pytest.raises(StatusError, match="too old") as refused,
    ):
        client.stream("/x?watch=1", 5)
    assert (refused.value.status, refused.value.reason) == (410, "Expired")


def test_an_unquoted_path_is_rejected(tmp_path: Path) -> None:
    with answering(tmp_path) as (client, _):
        for path in ("/a b", "/ä", "/a\r\nHost: elsewhere"):
            with pytest.raises(ValueError, match="is not quoted"):
                client.request("GET", path)
    torn = connect(kubeconfig(tmp_path, "http://127.0.0.1:9", token="one\ntwo"))
    with pytest.raises(Unreachable, match="not one line"):
        torn.request("GET", "/x")
