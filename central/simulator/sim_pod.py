"""A pod of the simulated world: what is known of it beside what the scheduler is told."""

from dataclasses import dataclass

from central.model.facts import PodSeen
from central.model.volumes import ClaimSeen
from central.simulator.sim_budgets import DisruptionBudget
from protos.gpu_sharing import WHOLE
from protos.names import GPU, GPU_SHARE


@dataclass(frozen=True, slots=True)
class PodPlan:
    """As the manifest tells it."""

    runs_s: float | None  # None: for ever
    again: bool  # a controller makes it again when it is evicted or lost
    labels: tuple[tuple[str, str], ...]
    owner: str = ""  # uid of its controller
    claims: tuple[ClaimSeen, ...] = ()  # that come and go with it


@dataclass(slots=True)
class SimPod:
    """One that is there."""

    seen: PodSeen
    life: PodPlan
    since: float  # when it came
    budgets: tuple[DisruptionBudget, ...]
    gpus: int = 0  # mask
    started: float = 0.0


def waits(seen: PodSeen) -> bool:
    return seen.ours and not seen.node and seen.phase == "Pending"


def gpus_of(seen: PodSeen) -> float:
    """How many it uses; of one in shares its part."""
    share = seen.spec.request(GPU_SHARE)
    return share / WHOLE if share else seen.spec.request(GPU)


def group_of(seen: PodSeen) -> str:
    """The name of what it is a part of: a Job, a gang, a controller."""
    job = seen.part.job if seen.part is not None else ""
    return job or seen.gang or seen.owner_name.rpartition("/")[2]


def job_of(seen: PodSeen) -> str:
    return f"{seen.namespace}/{group_of(seen) or seen.name}"


def first_uid(uid: str) -> str:
    """Of the pod that the manifest made, however often it was made again."""
    return uid.partition("#")[0]
