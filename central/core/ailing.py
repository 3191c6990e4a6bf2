"""Gangs that run on GPUs which are not fit any more: what their owners are told. Nothing is evicted:
what an error means for a job that runs, its owner knows best."""

from typing import TYPE_CHECKING

from central.core.decisions import Warn
from central.core.gangs import Gang, Pod
from protos.topology import indices_of

if TYPE_CHECKING:
    from central.core.cluster import Cluster

SHOWN = 3  # of a gang's unfit GPUs, in its sentence

Held = tuple[Pod, str, int]  # who holds which GPU of which node


def held(cluster: "Cluster", gang: Gang) -> list[Held]:
    """The unfit GPUs that the gang's pods hold, as pod-resources says."""
    if not cluster.ailing:
        return []
    found: list[Held] = []
    for pod in gang.placed():
        if pod.node not in cluster.ailing or not pod.confirmed or not pod.alive:
            continue
        unfit = pod.gpus & ~cluster.nodes[pod.node].healthy()
        found += [(pod, pod.node, index) for index in indices_of(unfit)]
    return found


def sentence(cluster: "Cluster", gang: Gang) -> str:
    """Empty where there is nothing to say."""
    if not cluster.ailing:
        return ""
    found = held(cluster, gang)
    said = [_words(cluster, *each) for each in found[:SHOWN]]
    if len(found) > SHOWN:
        said.append(f"and {len(found) - SHOWN} more of its GPUs")
    return "; ".join(said)


def warn(cluster: "Cluster", gang: Gang) -> list[Warn]:
    """For each GPU that became unfit while the gang holds it: said once, until it is fit again."""
    if not cluster.ailing and not gang.warned:
        return []
    found = held(cluster, gang)
    fresh = [each for each in found if _name(*each) not in gang.warned]
    gang.warned = frozenset(_name(*each) for each in found)
    owner = gang.object.uid if gang.object is not None else ""
    return [
        Warn(
            gang.namespace,
            gang.name if owner else "",
            owner,
            pod.seen.uid,
            pod.seen.name,
            _words(cluster, pod, node, index),
        )
        for pod, node, index in fresh
    ]


def _words(cluster: "Cluster", pod: Pod, node: str, index: int) -> str:
    report = cluster.nodes[node].report
    why = report.topology.gpus[index].why if report else ""
    return (
        f"GPU {index} of node {node}, held by {pod.seen.name}, is not fit: {why or 'not told why'}"
    )


def _name(pod: Pod, node: str, index: int) -> tuple[str, str, int]:
    return pod.seen.uid, node, index
