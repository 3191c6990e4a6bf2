"""List, then watch: raw JSON of each kind becomes facts in the inbox. Drops, 410 and API server
restarts heal here: what disappeared meanwhile becomes a Gone fact.

    reader = objects.Reader(scheduler_names, levels)
    watches = start(kinds(reader), client, inbox)
    watches.wait_synced(timeout_s); ...; watches.stop()
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from central.core.facts import Fact
from central.kube.client import Client
from central.kube.objects import Reader


@dataclass(frozen=True, slots=True)
class Kind:
    name: str  # for log lines: pods
    path: str  # /api/v1/pods
    seen: Callable[[dict[str, Any]], Fact]
    gone: Callable[[dict[str, Any]], Fact]
    optional: bool = False  # a CRD that may be missing


class Watches:
    def wait_synced(self, timeout_s: float | None = None) -> bool:
        """Whether the first list of every kind is in (a missing optional kind counts as empty)."""
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


def kinds(reader: Reader) -> tuple[Kind, ...]:
    """Pods, nodes, PodGroups."""
    raise NotImplementedError


def start(kinds: Sequence[Kind], client: Client, inbox: Callable[[Fact], None]) -> Watches:
    raise NotImplementedError
