"""The least harm by which a claim of one queue can be met, as an integer program over the pods that run.

A gang loses members above its minima, or all of its members. Harm is compared from left to right: the highest priority;
then by priority gangs below their minimum, work and pods; then capacity, run time and age."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.preemption_request import PreemptionRequest
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import GPU, GPU_SHARE
from tests.central.scheduler.exact.model import Model, Sum, total
from tests.central.scheduler.exact.space import Free, place

Harm = tuple[int, ...]
WHOLE = 100  # shares of a GPU


class Victims:
    def __init__(
        self, cluster: Scheduler, request: PreemptionRequest, min_runtime_s: float
    ) -> None:
        self.cluster, self.now, self.model = cluster, request.now, Model()
        self.min_runtime_s = min_runtime_s
        self.leaves: dict[str, Sum] = {}  # pods that may be evicted, by uid
        self.broken: dict[int, list[Sum]] = defaultdict(list)
        self.gangs = [
            gang
            for gang in cluster.state.gangs.values()
            if gang.priority < request.gang.priority and gang.counts.placed
        ]
        for gang in self.gangs:
            self._loses(gang)
        self._keep_budgets()
        groups = [(dict(spec.requests), count) for spec, count in request.placement.groups]
        place(self.model, self._free(), groups, self._domains(request.placement.required))

    def least(self) -> Harm | None:
        return self.model.least(self._harm())

    def of(self, chosen: Iterable[Pod]) -> Harm | None:
        """The harm of these victims; None: they may not leave, or the claimant does not fit."""
        gone = {pod.seen.uid for pod in chosen}
        if not gone <= self.leaves.keys():
            return None
        rows = [1 - x if uid in gone else x for uid, x in self.leaves.items()]
        return self.model.least(self._harm(), *rows)

    def _loses(self, gang: Gang) -> None:
        model, placed, breaks = self.model, gang.counts.placed, self.model.binary()
        self.broken[gang.priority].append(breaks)
        own = {pod.seen.uid: model.binary() for pod in placed}
        self.leaves |= own
        for pod in placed:
            model.at_most(breaks, own[pod.seen.uid])
            if pod.seen.preemptable is False:
                model.at_most(own[pod.seen.uid], 0)
        if self.now - min(pod.since or 0.0 for pod in placed) < self.min_runtime_s:
            model.at_most(breaks, 0)
        roles = gang.object.task_min if gang.object is not None else ()
        for role, least in ((None, gang.minimum), *roles):
            uids = [pod.seen.uid for pod in placed if role in (None, pod.seen.task)]
            spare = max(0, len(uids) - least)
            model.at_most(total(own[uid] for uid in uids) - spare, breaks * (len(uids) - spare))
            if len(uids) < least:  # no member of it is to spare, of whatever role
                for x in own.values():
                    model.at_most(x, breaks)

    def _keep_budgets(self) -> None:
        for budget in self.cluster.budgets.seen.values():
            app = budget.name.removeprefix("keep-")
            uids = [
                uid
                for uid in self.leaves
                if (seen := self.cluster.state.pods[uid].seen).phase == "Running"
                and dict(seen.labels).get("app") == app
            ]
            self.model.at_most(total(self.leaves[uid] for uid in uids), budget.allowed)

    def _free(self) -> Free[str]:
        """By node; what stays of each resource when the victims have left."""
        found: dict[str, dict[str, Sum | int]] = {}
        for name, node in self.cluster.state.nodes.items():
            assert node.seen is not None
            found[name] = dict(node.seen.allocatable)
        for uid, pod in self.cluster.state.pods.items():
            if pod.node:
                stays = 1 - self.leaves[uid] if uid in self.leaves else Sum(constant=1)
                for resource, amount in pod.spec.requests:
                    found[pod.node][resource] = found[pod.node].get(resource, 0) - amount * stays
        return found

    def _domains(self, level: str) -> list[Collection[str]]:
        if not level:
            return []
        domains: dict[str, list[str]] = defaultdict(list)
        for name, node in self.cluster.state.nodes.items():
            assert node.seen is not None
            domains[name if level == "node" else node.seen.labels[level]].append(name)
        return list(domains.values())

    def _harm(self) -> list[Sum]:
        ranks = sorted(self.broken, reverse=True)
        highest = self.model.integer(0, len(ranks))
        work, pods = defaultdict[int, Sum](Sum), defaultdict[int, Sum](Sum)
        size = ran = age = Sum()
        for gang in self.gangs:
            for pod in gang.counts.placed:
                x = self.leaves[pod.seen.uid]
                self.model.at_most(x * (len(ranks) - ranks.index(gang.priority)), highest)
                worth, seconds = _worth(pod), int(self.now - (pod.since or 0.0))
                saved = pod.seen.checkpoint
                lost = seconds if saved is None else min(seconds, int(self.now - saved))
                work[gang.priority] += x * (worth * lost)
                pods[gang.priority] += x
                size, ran = size + x * worth, ran + x * seconds
                age += x * int(self.now - pod.seen.created)
        broken = [total(self.broken[rank]) for rank in ranks]
        by_rank = (*broken, *(work[rank] for rank in ranks), *(pods[rank] for rank in ranks))
        return [highest, *by_rank, size, ran, age]


def _worth(pod: Pod) -> int:
    """In millionths of a GPU; 16 cores or 128 GiB are as much as one."""
    requests = Counter(dict(pod.spec.requests))
    devices = requests[GPU] * 1_000_000 + requests[GPU_SHARE] * (1_000_000 // WHOLE)
    return max(devices, requests["cpu"] * 125 // 2, requests["memory"] * 10**6 // 2**37)
