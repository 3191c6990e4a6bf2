"""Decisions -> API calls, many in flight; their outcomes come back to the inbox as facts.

    effects = Effects(client, inbox, gate=intents, workers=32)
    effects.submit(decisions)      # never blocks
    effects.stop()

Bind -> BindDone or BindFailed, Evict -> EvictDone, Tell -> nothing (coalesced per gang, slow lane).
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from central.core.decisions import Decision
from central.core.facts import Fact
from central.kube.client import Client


class Gate(Protocol):
    """central.intents.Intents: holds a bind back until the node's agent knows its intents."""

    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None: ...


class Effects:
    def __init__(
        self,
        client: Client,
        inbox: Callable[[Fact], None],
        gate: Gate,
        workers: int = 32,
    ) -> None:
        raise NotImplementedError

    def submit(self, decisions: Iterable[Decision]) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Finish what is on the wire, forget the rest."""
        raise NotImplementedError
