"""A resource for each profile that there are slices of: served from when the first one comes."""

import threading
from collections.abc import Callable

from agent.node_state import AgentNode, NodeState
from protos import slicing


class Resources:
    """serve is called once for each resource, and goes on by itself, slices or none."""

    def __init__(self, node: AgentNode, serve: Callable[[str], None]) -> None:
        self._node, self._serve = node, serve
        self._known: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for resource in sorted(there(self._node.state) - self._known):
                self._known.add(resource)
                self._serve(resource)
            self._node.wait(lambda state: stop.is_set() or not there(state) <= self._known, 60)


def there(state: NodeState) -> set[str]:
    return {slicing.resource(part.profile) for _, part in slicing.of(state.topology)}
