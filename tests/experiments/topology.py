"""How long a job of parameter servers and workers takes by who sits where: each server sends its part of
the model to each worker, and takes it back; what stays on the node costs nothing. So a step lasts
as long as the server with the most remote workers needs (Optimus, EuroSys'18)."""

import random
from collections import Counter
from collections.abc import Sequence

from central.simulator.simulation_result import SimulationResult

Placement = dict[str, str]  # node by pod
NODES, PLACES = 3, 3


def remote(placement: Placement) -> int:
    """The most workers on other nodes that one server has."""
    workers = [node for pod, node in placement.items() if "worker" in pod]
    return max(
        sum(node != at for node in workers) for pod, at in placement.items() if "-ps-" in pod
    )


def pairs(placement: Placement) -> int:
    """Servers and workers on different nodes."""
    workers = [node for pod, node in placement.items() if "worker" in pod]
    servers = [node for pod, node in placement.items() if "-ps-" in pod]
    return sum(a != b for a in servers for b in workers)


def ours(story: SimulationResult) -> dict[str, Placement]:
    found: dict[str, Placement] = {}
    for placed in story.placed:
        found.setdefault(placed.gang, {})[placed.pod] = placed.node
    return found


def spread(pods: Sequence[str], dice: random.Random) -> Placement:
    """As the default scheduler does: the emptiest node, any of them where several are."""
    used: Counter[int] = Counter(dict.fromkeys(range(NODES), 0))
    placement: Placement = {}
    for pod in pods:
        least = min(used.values())
        node = dice.choice([node for node, count in used.items() if count == least])
        used[node] += 1
        placement[pod] = str(node)
    return placement


def packed(pods: Sequence[str], dice: random.Random) -> Placement:
    """The fullest node with a place, whatever the role."""
    used: Counter[int] = Counter(dict.fromkeys(range(NODES), 0))
    placement: Placement = {}
    for pod in pods:
        most = max(count for count in used.values() if count < PLACES)
        node = dice.choice([node for node, count in used.items() if count == most])
        used[node] += 1
        placement[pod] = str(node)
    return placement


def anywhere(pods: Sequence[str], dice: random.Random) -> Placement:
    """Other work leaves the nodes' places to chance."""
    places = dice.sample([str(node) for node in range(NODES) for _ in range(PLACES)], len(pods))
    return dict(zip(pods, places, strict=True))
