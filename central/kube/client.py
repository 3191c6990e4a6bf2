"""Requests to the API server: configuration through the kubernetes package, then lean HTTP/1.1 over
kept connections, one per thread in flight. Bytes in, bytes out.

    client = connect(kubeconfig)        # Unusable: one sentence, exit 2
    reply = client.request("POST", path, body)   # Unreachable: try again later; any status is a reply
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any


class Unusable(Exception):
    """The configuration can't be used: a sentence for the user, exit 2."""


class Unreachable(Exception):
    """No answer from the API server, now."""


class Refused(Exception):
    """An answer of 400 or above. status, reason and the server's message."""

    status: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    retry_after_s: float = 0.0

    def json(self) -> Any:
        raise NotImplementedError

    def refusal(self) -> Refused:
        raise NotImplementedError


class Client:
    server: str  # its address, for messages

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> Reply:
        raise NotImplementedError

    def get(self, path: str, timeout_s: float = 30.0) -> Any:
        """The parsed answer; raises Refused or Unreachable."""
        raise NotImplementedError

    def lines(self, path: str, timeout_s: float) -> AbstractContextManager[Iterator[bytes]]:
        """A streamed answer, line by line."""
        raise NotImplementedError


def connect(kubeconfig: str | None) -> Client:
    """From the file; without one from the pod's ServiceAccount, else from KUBECONFIG or ~/.kube/config."""
    raise NotImplementedError
