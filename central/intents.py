"""What agents should grant: published by the loop, fetched by long polls, awaited by binds.

intents.publish({"n1": (grant, ...)})        # the loop, before it submits the binds; whole lists
intents.hold("n1", 0.3, go)                  # effects: go() once n1's agent has them, or too late
"""

from collections.abc import Callable, Mapping

from protos.topology import Grant


class Intents:
    def publish(self, grants: Mapping[str, tuple[Grant, ...]]) -> None:
        """From any thread. The whole list of each node named; an equal list changes nothing."""
        raise NotImplementedError

    def hold(self, node: str, at_most_s: float, go: Callable[[], None]) -> None:
        """Call go once: at once where the node's agent has what was published or no agent is
        connected; else when it has, or after at_most_s. From any thread; go must not block."""
        raise NotImplementedError
