"""What agents should grant: published by the loop, fetched by long polls, awaited by binds.

    intents.publish({"n1": (grant, ...)})        # the loop, before it submits the binds; whole lists
    intents.hold("n1", 0.3, go)                  # effects: go() once n1's agent has them, or too late
    version, grants = await intents.fetch("n1", seen, wait_s)      # intake, in its event loop

An agent that asks with a version has that version: asking again is the acknowledgement. A bind waits
only where an agent is asking (or was answered a moment ago), so no bind waits for the absent.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from protos.topology import Grant

Go = Callable[[], None]

_BETWEEN_POLLS_S = 1.0  # so soon after an answer the agent asks again, if it lives


@dataclass(slots=True)
class _Node:
    version: int
    grants: tuple[Grant, ...] = ()
    seen: int = 0  # the version that its agent has
    polls: int = 0  # open now
    answered: float = float("-inf")  # when a poll was last answered
    asking: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = field(default_factory=list)
    held: dict[int, tuple[int, Go]] = field(default_factory=dict)  # what version each waits for


class Intents:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, _Node] = {}
        # Never a version of an earlier centre, which an agent may still have in mind.
        self._versions = itertools.count(int(time.time() * 1000))
        self._tickets = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None

    def publish(self, grants: Mapping[str, tuple[Grant, ...]]) -> None:
        """From any thread. The whole list of each node named; an equal list changes nothing."""
        wakes: list[asyncio.Event] = []
        with self._lock:
            for name, wanted in grants.items():
                node = self._node(name)
                if node.grants != wanted:
                    node.grants = wanted
                    node.version = next(self._versions)
                    wakes += (event for _, event in node.asking)
            loop = self._loop
        if wakes and loop is not None:
            _soon(loop, partial(_wake, wakes))

    def hold(self, node: str, at_most_s: float, go: Go) -> None:
        """Call go once: at once where the node's agent has what was published or no agent is
        asking; else when it has, or after at_most_s. From any thread; go must not block."""
        with self._lock:
            state = self._nodes.get(node)
            loop = self._loop
            wait = state is not None and state.seen != state.version and _is_asking(state)
            if state is not None and wait:
                ticket = next(self._tickets)
                state.held[ticket] = (state.version, go)
        if not wait:
            go()
        elif loop is None or not _soon(
            loop, lambda: loop.call_later(at_most_s, self._expire, node, ticket)
        ):
            self._expire(node, ticket)

    def asking(self, node: str) -> bool:
        """Whether an agent waits in a long poll for it."""
        with self._lock:
            state = self._nodes.get(node)
            return state is not None and state.polls > 0

    async def fetch(self, name: str, seen: int, wait_s: float) -> tuple[int, tuple[Grant, ...]]:
        """The list of a version other than the one seen, as soon as there is one; after wait_s
        whatever there is."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        entry = (loop, changed)
        with self._lock:
            self._loop = loop
            node = self._node(name)
            node.seen = seen
            node.polls += 1
            node.asking.append(entry)
            released = _released(node, seen)
        _call(released)
        answered = False
        try:
            if seen == node.version:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), wait_s)
            answered = True
            return node.version, node.grants
        finally:
            with self._lock:
                node.polls -= 1
                node.asking.remove(entry)
                if answered:
                    node.answered = time.monotonic()
                elif not node.polls:  # it hung up: nobody to wait for
                    node.answered = float("-inf")
                released = [] if _is_asking(node) else _released(node, node.version)
            _call(released)

    def _node(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node(next(self._versions))
        return node

    def _expire(self, name: str, ticket: int) -> None:
        with self._lock:
            found = self._nodes[name].held.pop(ticket, None)
        if found is not None:
            found[1]()


def _is_asking(node: _Node) -> bool:
    return node.polls > 0 or time.monotonic() - node.answered < _BETWEEN_POLLS_S


def _released(node: _Node, seen: int) -> list[Go]:
    """Those that wait for no more than what was seen: versions only grow."""
    tickets = [ticket for ticket, (version, _) in node.held.items() if version <= seen]
    return [node.held.pop(ticket)[1] for ticket in tickets]


def _wake(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()


def _call(released: list[Go]) -> None:
    for go in released:
        go()


def _soon(loop: asyncio.AbstractEventLoop, do: Callable[[], object]) -> bool:
    """Whether the loop still runs; it has ended when the server has stopped."""
    try:
        loop.call_soon_threadsafe(do)
    except RuntimeError:
        return False
    return True
