"""A proxy before the API server that notes each request, as its authorizer would see it."""

import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.fakes.acceptor import Acceptor

_LINE = re.compile(rb"(?:^|\r\n)(GET|POST|PUT|PATCH|DELETE) (/\S*) HTTP/1\.1\r\n")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Request:
    verb: str
    group: str
    resource: str  # with its subresource
    namespace: str
    name: str


def _request(method: str, target: str) -> Request:
    url = urlsplit(target)
    parts = url.path.strip("/").split("/")
    if parts[0] not in ("api", "apis"):
        return Request("get", "", url.path, "", "")
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if not rest:  # discovery
        return Request("get", "", url.path, "", "")
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource, name, sub = (*rest, "", "", "")[:3]
    verb = _VERBS.get(method, "get" if name else "list")
    if "watch" in parse_qs(url.query):
        verb = "watch"
    return Request(verb, group, f"{resource}/{sub}" if sub else resource, namespace, name)


class RequestLog:
    """Plain HTTP."""

    def __init__(self, port: int) -> None:
        self.requests: set[Request] = set()
        self._to = port
        self._open: list[socket.socket] = []
        self._acceptor = Acceptor(self._take)
        self.url = f"http://127.0.0.1:{self._acceptor.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._acceptor.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _take(self, near: socket.socket) -> None:
        far = socket.create_connection(("127.0.0.1", self._to))
        self._open += (near, far)
        for source, to, noted in ((near, far, True), (far, near, False)):
            threading.Thread(
                target=self._forward, args=(source, to), kwargs={"noted": noted}, daemon=True
            ).start()

    def _forward(self, source: socket.socket, to: socket.socket, *, noted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if noted:
                    # The client sends a request's line and headers in one piece.
                    for method, target in _LINE.findall(data):
                        self.requests.add(_request(method.decode(), target.decode()))
                to.sendall(data)
        for each in (source, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
