"""An elastic gang as the autoscaler sees it: its members, and which of their pods hold seats."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from central.model.facts import PodSpec
from central.model.jobspec import ElasticTask
from central.scheduler.filters import gpu_model
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang, GangKey

# Of a change of size, until one is measured, where the Job does not say: what PyTorch takes in one process.
COST_S = 1.0
LEAST_HOLD_S = 10.0
LEAVE_S = 30.0  # how long its coordinator may take to let members go
# Causes of a change of size. The names are label values of metrics.
NEED, SHARE, ROOM, NO_SEAT, PLACE = "need", "share", "room", "no-seat", "place"
NO_START, ASK = "no-start", "ask"
LEAVE_FOR_NEEDS_S = 5.0  # the same if others wait for their seats


@dataclass(slots=True, eq=False)
class ElasticGang:
    gang: Gang
    task: ElasticTask
    members: frozenset[int]  # as decided, whether or not their pods exist
    settled: bool = True  # no decision about its members is on its way
    why: str = ""  # its members changed last
    placed: dict[int, Pod] = field(default_factory=dict)  # members with a node that stay there
    pending: frozenset[int] = frozenset()  # members without a node
    unready: dict[int, str] = field(default_factory=dict)  # of placed: why they do not start
    used: frozenset[int] = frozenset()  # numbers whose pods exist, those that are leaving included
    ending: bool = False  # a member has succeeded, or one below others has no seat: no more come
    # The numbers of its pods by uid, where another controller creates them; empty: the pods say theirs.
    numbers: Mapping[str, int] = field(default_factory=dict)
    highest_first: bool = False  # the highest numbers leave
    step: int = 0  # the latest that was reported; 0: none

    @classmethod
    def of(
        cls,
        gang: Gang,
        task: ElasticTask,
        members: Iterable[int],
        *,
        settled: bool,
        why: str = "",
        step: int = 0,
    ) -> "ElasticGang":
        found = cls(gang, task, frozenset(members), settled, why, step=step)
        found.highest_first = task.replica > 1  # whole replicas leave
        used = set()
        for pod in gang.members.values():
            part = pod.seen.part
            if part is None or part.task != task.task:
                continue
            used.add(part.index)
            found.ending |= pod.seen.phase == "Succeeded" and part.index in found.members
            if holds_seat(pod) and part.index in found.members:
                found.placed[part.index] = pod
                if pod.seen.stuck and pod.seen.phase == "Pending":
                    found.unready[part.index] = pod.seen.stuck
        found.used = frozenset(used)
        found.pending = found.members - found.placed.keys()
        return found

    def number(self, pod: Pod) -> int | None:
        """Returns the pod's number among the members; None: it is a pod of another task."""
        if self.numbers:
            return self.numbers.get(pod.seen.uid)
        part = pod.seen.part
        return None if part is None or part.task != self.task.task else part.index

    @property
    def moves(self) -> bool:
        """Returns whether its members can be replaced one by one."""
        return not self.numbers

    def may_leave(self) -> Sequence[Pod]:
        """Returns the members with a seat among which those that leave are chosen."""
        if not self.highest_first:
            return tuple(self.placed.values())
        return [self.placed[number] for number in sorted(self.placed, reverse=True)[: self.spare]]

    def with_higher(self, pods: Sequence[Pod]) -> list[Pod]:
        """Returns these members, and those that leave with them because their numbers are higher."""
        if not self.highest_first or not pods:
            return list(pods)
        lowest = min(number for pod in pods if (number := self.number(pod)) is not None)
        return [pod for number, pod in self.placed.items() if number >= lowest]

    @property
    def key(self) -> GangKey:
        return self.gang.key

    @property
    def cost_s(self) -> float:
        return COST_S if self.task.cost_s is None else self.task.cost_s

    @property
    def hold_s(self) -> float:
        """The minimum time between two voluntary changes."""
        hold_s = self.task.hold_s
        return hold_s if hold_s is not None else max(LEAST_HOLD_S, 20 * self.cost_s)

    @property
    def spec(self) -> PodSpec | None:
        """The pod class of its members, which are equal; None: no member has a seat."""
        return next((pod.spec for pod in self.placed.values()), None)

    @property
    def started(self) -> bool:
        return len(self.placed) >= self.task.least and not self.gang.missing()

    @property
    def waits(self) -> bool:
        """Returns whether members come for which there should be seats. Those that were asked for wait for nodes."""
        return bool(self.pending) and not self.task.asks

    @property
    def asked(self) -> int:
        """Members, if those without a seat were asked for; else 0."""
        return len(self.members) if self.task.asks else 0

    @property
    def spare(self) -> int:
        """Returns how many of its seats it can give, in whole steps down to the least size."""
        return self.surplus(len(self.placed))

    def allowed(self, size: int) -> int:
        """The largest allowed size that is no larger; at least the least one."""
        task = self.task
        above = min(max(size, task.least), task.most) - task.least
        return task.least + above // task.step * task.step

    def useful(self, size: int) -> int:
        """The largest allowed size that is no larger, and faster than all below."""
        useful = self.task.useful
        if not useful:
            return self.allowed(size)
        return useful[max(bisect_right(useful, size) - 1, 0)]

    @property
    def most_useful(self) -> int:
        return self.task.useful[-1] if self.task.useful else self.task.most

    def surplus(self, size: int) -> int:
        """Returns how many members it has above its least size, when it has this size."""
        return max(0, size - self.task.least)

    @property
    def level(self) -> float:
        """The surplus by which gangs grow, the lowest first; infinite if this gang can use no more members."""
        size = len(self.placed)
        return self.surplus(size) if size < self.most_useful else inf


def holds_seat(pod: Pod) -> bool:
    """Returns whether the pod has a seat and stays there. One whose node was deleted has none."""
    return pod.charged_spec is not None and pod.alive and not pod.leaving


def on_its_gpus(
    task: ElasticTask, pods: Iterable[Pod], nodes: Mapping[str, ClusterNode]
) -> ElasticTask:
    """The task with the speeds on the GPUs that its pods have."""
    if task.speeds is None or not task.speeds.by_model:
        return task
    found = {
        model for name in {pod.node for pod in pods if pod.node} for model in _models(nodes[name])
    }
    return task.on(frozenset(found))


def model_of(node: ClusterNode) -> str:
    """Returns the model of the node's GPUs; empty if they are of several models, or unknown."""
    models = set(_models(node))
    return models.pop() if len(models) == 1 else ""


def _models(node: ClusterNode) -> Iterator[str]:
    known = node.reported.gpu_models or (gpu_model.known(node.seen) if node.seen else ())
    return (model for model, _ in known)


@dataclass(frozen=True, slots=True)
class Resize:
    """A decision about a gang's members."""

    key: GangKey
    members: tuple[int, ...]
    why: str
    cause: str  # NEED, SHARE, ROOM, NO_SEAT, NO_START, PLACE or ASK
    leaving: tuple[Pod, ...] = ()
    leave_s: float = LEAVE_S


def with_more(members: Collection[int], used: Collection[int], more: int, most: int) -> set[int]:
    """The members and that many more below `most`: the lowest numbers without a pod first."""
    found = set(members)
    free = [number for number in range(most) if number not in found]
    free.sort(key=lambda number: number in used)
    return found | set(free[:more])
