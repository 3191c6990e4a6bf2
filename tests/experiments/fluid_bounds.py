"""The most trainers that Fluid's cluster holds beside the pods of a service and the parameter servers, by what a node
can hold.
Masters are left out: they fit beside whatever stands on a node.

This is what a scheduler would reach that knows in advance which pods of the service leave.
"""

from collections.abc import Sequence

import numpy as np

from tests.experiments import elastic

FREE_CPU = elastic.NODE_CPU - elastic.SYSTEM_CPU
NONE = -(10**6)
Content = tuple[int, int]  # pods of the service, servers

ANY = [
    (pods, servers)
    for pods in range(6)
    for servers in range(5)
    if elastic.NGINX_CPU * pods + elastic.SERVER_CPU * servers <= FREE_CPU
]
PACKED = [[(pods, 0) for pods in range(6)]] * 80 + [[(0, servers) for servers in range(5)]] * 53


def trainers_beside(content: Content) -> int:
    pods, servers = content
    used = elastic.NGINX_CPU * pods + elastic.SERVER_CPU * servers
    return int((FREE_CPU - used + 1e-9) // elastic.TRAINER_CPU)


def most_trainers(nodes: Sequence[Sequence[Content]], pods: int, servers: int) -> int:
    """nodes: what each may hold beside trainers."""
    best = np.full((pods + 1, servers + 1), NONE)
    best[0, 0] = 0
    for contents in nodes:
        following = np.full_like(best, NONE)
        for content in contents:
            own_pods, own_servers = content
            before = best[: pods + 1 - own_pods, : servers + 1 - own_servers]
            there = following[own_pods:, own_servers:]
            np.maximum(there, before + trainers_beside(content), out=there)
        best = following
    return int(best[pods, servers])


def cpu_percent(trainers: int, pods: int, jobs: int) -> float:
    used = elastic.NODES * elastic.SYSTEM_CPU + elastic.NGINX_CPU * pods
    used += elastic.JOB_CPU * jobs + elastic.TRAINER_CPU * trainers
    return 100 * used / elastic.TOTAL_CPU
