"""A pod of the simulated world: what the world knows beyond the scheduler's facts."""

from dataclasses import dataclass

from central.model.facts import PodSeen
from central.model.resources import GPU_UNITS
from central.model.volumes import ClaimSeen
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.simulator.sim_budgets import DisruptionBudget

CURRENCY = GpuCurrency()  # as without --mig-fraction


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod's behaviour, from its manifest."""

    runs_s: float | None  # None: forever
    again: bool  # a controller recreates it when it is evicted or lost
    labels: tuple[tuple[str, str], ...]
    owner: str = ""  # uid of its controller
    claims: tuple[ClaimSeen, ...] = ()  # created and deleted with the pod
    grace_s: float = 0.0  # how long it takes to leave when it is deleted
    start_s: float = 0.0  # from its binding until it runs


@dataclass(slots=True)
class SimPod:
    """An existing pod."""

    seen: PodSeen
    plan: PodPlan
    since: float  # creation
    budgets: tuple[DisruptionBudget, ...]
    gpus: int = 0  # mask
    started: float = 0.0
    deletion_cost: int = 0


def waits(seen: PodSeen) -> bool:
    return seen.ours and not seen.node and seen.phase == "Pending"


def gpus_of(seen: PodSeen) -> float:
    """Returns how many GPUs it uses; shares and slices count as fractions."""
    return CURRENCY.worth(seen.spec.requests) / GPU_UNITS


def group_of(seen: PodSeen) -> str:
    """The name of its Job, gang or controller; empty: none."""
    job = seen.part.job if seen.part is not None else ""
    return job or seen.gang or seen.owner_name.rpartition("/")[2]


def job_of(seen: PodSeen) -> str:
    return f"{seen.namespace}/{group_of(seen) or seen.name}"


def first_uid(uid: str) -> str:
    """The uid of the pod in the manifests that this one is a successor of."""
    return uid.partition("#")[0]
