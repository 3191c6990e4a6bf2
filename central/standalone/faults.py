"""Faults that a test orders from the API server: what happens to one request instead of its answer."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """executed: the request takes effect all the same. status 0: no answer, the connection closes."""

    status: int = 0
    body: bytes = b""
    executed: bool = False


Faults = Callable[[str, str], Fault | None]  # by method and path; None: the request is served


def no_faults(method: str, path: str) -> Fault | None:
    return None
