"""The plan of each node, its planned devices and its claims: published by the loop, fetched by agents with long polls,
and awaited by binds, because the kubelet asks the agent for devices soon after a bind.

    plans.publish({"n1": NodePlan((grant, ...))})   # the loop, before it submits the binds; whole lists
    plans.hold("n1", 0.3, go)                  # effects: go() once n1's agent has them, or after 0.3 s
    version, plan = await plans.fetch("n1", seen, wait_s)   # the agent service, in its event loop

A poll carries the version that its agent has, so the next poll acknowledges the last answer. A bind
waits only for an agent with an open poll, or one that was answered within the last second. It never
waits for an agent that is away.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from central.scheduler.inventory.cluster_node import NodePlan

Go = Callable[[], None]

_BETWEEN_POLLS_S = 1.0  # after an answer, a running agent polls again within this time


@dataclass(slots=True)
class _NodePlans:
    version: int
    plan: NodePlan = field(default_factory=NodePlan)
    seen: int = 0  # the version that its agent has
    polls: int = 0  # open now
    answered: float = float("-inf")  # when a poll was last answered
    waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = field(default_factory=list)
    held: dict[int, tuple[int, Go]] = field(default_factory=dict)  # by ticket: the version awaited


class PlannedDevices:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, _NodePlans] = {}
        # Starts at the time, so that no version of an earlier process comes again.
        self._versions = itertools.count(int(time.time() * 1000))
        self._tickets = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None

    def publish(self, plans: Mapping[str, NodePlan]) -> None:
        """Sets the plans of these nodes, from any thread. An equal plan changes nothing."""
        wakes: list[asyncio.Event] = []
        with self._lock:
            for name, plan in plans.items():
                node = self._node(name)
                if node.plan != plan:
                    node.plan = plan
                    node.version = next(self._versions)
                    wakes += (event for _, event in node.waiters)
            loop = self._loop
        if wakes and loop is not None:
            _soon(loop, partial(_wake, wakes))

    def hold(self, node: str, at_most_s: float, go: Go) -> None:
        """Calls go once: now if the node's agent has the published list or does not poll, else as
        soon as it has the list, after at_most_s at the latest. From any thread. go must not block."""
        with self._lock:
            state = self._nodes.get(node)
            loop = self._loop
            wait = state is not None and state.seen != state.version and _polls(state)
            if state is not None and wait:
                ticket = next(self._tickets)
                state.held[ticket] = (state.version, go)
        if not wait:
            go()
        elif loop is None or not _soon(
            loop, lambda: loop.call_later(at_most_s, self._expire, node, ticket)
        ):
            self._expire(node, ticket)

    async def fetch(self, name: str, seen: int, wait_s: float) -> tuple[int, NodePlan]:
        """The node's plan and its version: as soon as the version differs from seen, else after
        wait_s."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        entry = (loop, changed)
        with self._lock:
            self._loop = loop
            node = self._node(name)
            node.seen = seen
            node.polls += 1
            node.waiters.append(entry)
            released = _released(node, seen)
        _call(released)
        answered = False
        try:
            if seen == node.version:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), wait_s)
            answered = True
            return node.version, node.plan
        finally:
            with self._lock:
                node.polls -= 1
                node.waiters.remove(entry)
                if answered:
                    node.answered = time.monotonic()
                elif not node.polls:  # the agent hung up: nothing to wait for
                    node.answered = float("-inf")
                released = [] if _polls(node) else _released(node, node.version)
            _call(released)

    def _node(self, name: str) -> _NodePlans:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _NodePlans(next(self._versions))
        return node

    def _expire(self, name: str, ticket: int) -> None:
        with self._lock:
            found = self._nodes[name].held.pop(ticket, None)
        if found is not None:
            found[1]()


def _polls(node: _NodePlans) -> bool:
    return node.polls > 0 or time.monotonic() - node.answered < _BETWEEN_POLLS_S


def _released(node: _NodePlans, seen: int) -> list[Go]:
    """Takes out what waits for the seen version or an earlier one. Versions only grow."""
    tickets = [ticket for ticket, (version, _) in node.held.items() if version <= seen]
    return [node.held.pop(ticket)[1] for ticket in tickets]


def _wake(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()


def _call(released: list[Go]) -> None:
    for go in released:
        go()


def _soon(loop: asyncio.AbstractEventLoop, do: Callable[[], object]) -> bool:
    """False if the event loop has ended, because the server was stopped."""
    try:
        loop.call_soon_threadsafe(do)
    except RuntimeError:
        return False
    return True
