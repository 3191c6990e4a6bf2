"""Nodes on which gangs of several namespaces have died within a day, without a device fault: the last choice of gangs
of several nodes (placement/last_choice.py). A node on which a gang's own member failed is the gang's last choice.

Of a gang the node of the member that failed first counts. A namespace counts once for each node, and for none if its
gangs died on more than OWNER_NODES: then its programs are to blame. Somebody with many namespaces can make at most one
node in NODES_EACH a last choice, which delays no gang and widens no domain.

Design: docs/design/gpu-health.md
"""

from dataclasses import dataclass, field

from central.model.facts import PodSeen
from central.scheduler.snapshot.snapshot import LastChoice
from central.scheduler.state.cluster_state import ClusterState
from protos.slicing import requests_devices

KEPT_S = 86_400.0
SAME_DEATH_S = 600.0  # members of a gang that fail within so much of each other
OWNERS_LEAST = 3  # that blame a node
OWNER_NODES = 2
NODES_EACH = 16  # of so many nodes one may be a last choice, and one at least
OWNERS_MOST = 1_000  # that are remembered


@dataclass(frozen=True, slots=True)
class GangDeath:
    gang: str
    at: float  # seconds since the epoch


@dataclass(slots=True)
class NodeDeaths:
    by_owner: dict[str, dict[str, GangDeath]] = field(default_factory=dict)  # namespace, node

    def observe(self, state: ClusterState, pod: PodSeen) -> None:
        """Takes note of a failed pod. Called again for the same failure, it changes nothing."""
        node, key = state.nodes.get(pod.node), pod.gang_key
        if node is None or key is None or node.silent or node.is_unhealthy():
            return
        at = state.now if pod.ended is None else min(pod.ended, state.now)
        if state.now - at >= KEPT_S or not requests_devices(pod.spec.requests):
            return
        deaths = self.by_owner.setdefault(pod.namespace, {})
        for other, death in deaths.items():
            if death.gang == key[1] and abs(at - death.at) < SAME_DEATH_S:
                if death.at <= at:
                    return
                del deaths[other]
                break
        deaths[pod.node] = GangDeath(key[1], at)
        if len(deaths) > OWNER_NODES + 1:
            del deaths[min(deaths, key=lambda name: deaths[name].at)]
        if len(self.by_owner) > OWNERS_MOST:
            del self.by_owner[next(iter(self.by_owner))]

    def last_choice(self, state: ClusterState) -> LastChoice:
        """Returns the evidence by node; those with the most owners, the latest deaths first."""
        if not self.by_owner:
            return LastChoice()
        found: dict[str, list[float]] = {}
        own: dict[tuple[str, str], list[str]] = {}
        nodes = len(state.snapshot.columns.row)
        for owner in [*self.by_owner]:
            deaths = self.by_owner[owner]
            for name in [n for n, one in deaths.items() if state.now - one.at >= KEPT_S]:
                del deaths[name]
            for name, one in deaths.items():
                own.setdefault((owner, one.gang), []).append(name)
            if not deaths:
                del self.by_owner[owner]
            elif len(deaths) <= min(OWNER_NODES, max(nodes // 2, 1)):
                for name in deaths.keys() & state.snapshot.columns.row.keys():
                    found.setdefault(name, []).append(deaths[name].at)
        blamed = [name for name, times in found.items() if len(times) >= OWNERS_LEAST]
        blamed.sort(key=lambda name: (-len(found[name]), -max(found[name]), name))
        shared = {
            name: f"gangs of {len(found[name])} namespaces died here within a day without a device fault: the last "
            "choice of gangs of several nodes"
            for name in blamed[: max(nodes // NODES_EACH, 1)]
        }
        return LastChoice(shared, own)
