"""Days on which one of three tenants lies in a field of its objects, beside the same day told truly.

Each tenant has a queue with a deserved amount, gangs of 1-GPU pods, and one elastic Job. What its objects do is the
same on both days: only what they say differs. Queues reserve nothing: behind a reservation of another queue a tenant
waits for its start, which is no matter of lies."""

import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from statistics import stdev

from central.controllers.composite import new_scheduler
from central.model.json_types import Json
from central.scheduler.scheduler import Scheduler
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from protos import names
from protos.names import GPU

NODES, NODE_GPUS, DAY_S = 2, 8, 1800.0
GRACE_S = 30  # of the pods of honest tenants
MAX_GRACE_S = 60.0  # --max-eviction-grace of these days
SLACK_S = 10.0  # beside the grace, until a tenant within its share has what it asked for
TENANTS = ("liar", "ann", "bob")
ITS_PODS = {"matchLabels": {"tenant": "liar"}}


@dataclass(frozen=True, slots=True)
class TenantGang:
    """A gang of 1-GPU pods, or an elastic Job of `pods` members at most and `least` at least."""

    tenant: str
    name: str
    at_s: float
    pods: int
    runs_s: float
    least: int = 0  # 0: it is not elastic


Lie = Callable[[Json], None]


def _annotate(kind: str, *, only: bool = False, **notes: str) -> Lie:
    """notes: by the constant in protos.names. kind: of the objects that carry them; Pod: templates of Jobs, too, unless
    only pods themselves do."""

    def lie(raw: Json) -> None:
        for each in _carriers(raw, kind, only=only):
            each.setdefault("metadata", {}).setdefault("annotations", {}).update(
                {getattr(names, key): text for key, text in notes.items()}
            )

    return lie


def _carriers(raw: Json, kind: str, *, only: bool = False) -> Iterator[Json]:
    if raw["kind"] == kind:
        yield raw
    if raw["kind"] == "Job" and kind == "Pod" and not only:
        yield from (task["template"] for task in raw["spec"]["tasks"])


def _set_task(**fields: int) -> Lie:
    def lie(raw: Json) -> None:
        if raw["kind"] == "Job":
            raw["spec"]["tasks"][0].update(fields)
            raw["spec"]["minAvailable"] = raw["spec"]["tasks"][0]["minAvailable"]

    return lie


def _all_needed(raw: Json) -> None:
    if raw["kind"] == "Job":
        _set_task(minAvailable=raw["spec"]["tasks"][0]["replicas"])(raw)


def _one_suffices(raw: Json) -> None:
    if raw["kind"] == "PodGroup":
        raw["spec"]["minMember"] = 1


def _urgent(raw: Json) -> None:
    if raw["kind"] in ("Job", "PodGroup"):
        raw["spec"]["priorityClassName"] = "high"
    if raw["kind"] == "Pod":
        raw["spec"]["priorityClassName"] = "high"


def _ten_years(raw: Json) -> None:
    for each in _carriers(raw, "Pod"):
        each["spec"]["terminationGracePeriodSeconds"] = 315_360_000
        each["metadata"]["annotations"][names.GRACE] = "87600h"


def _speed(power: float) -> str:
    return " ".join(f"{size}:{size**power:.3f}" for size in range(1, 33))


def _nothing(raw: Json) -> None:
    """The lie is in the whole day: see documents()."""


LIES: dict[str, Lie] = {
    "most": _set_task(replicas=10_000),
    "least": _all_needed,
    "minimum of gangs": _one_suffices,
    "speed": _annotate("Job", SPEED=_speed(2.0)),
    "no speed": _annotate("Job", SPEED=" ".join(f"{size}:1" for size in range(1, 33))),
    "work left": _annotate("Job", WORK_LEFT="1s"),
    "much work left": _annotate("Job", WORK_LEFT="100000h"),
    "run time": _annotate("Pod", only=True, RUNS_FOR="60s"),
    "long run time": _annotate("Pod", only=True, RUNS_FOR="1000h"),
    "checkpoint": _annotate("Pod", CHECKPOINT="1970-01-01T00:00:01Z"),
    "resize cost": _annotate("Job", RESIZE_COST="86400s"),
    "yields": _annotate("Job", YIELDS="false"),
    "preemptable": _annotate("Pod", PREEMPTABLE="false"),
    "cooldown": _annotate("Pod", COOLDOWN="100000h"),
    "budget": _nothing,
    "grace": _ten_years,
    "priority": _urgent,
    "cut": _nothing,
}
TRUTH, ALL = "", "all"
LIES_A_DAY = 3  # compared with one day told truly
MOST_GAINED = 0.01  # of the GPU-hours without the lie
ERRORS = 3.0  # standard errors: of nineteen lies one is beyond two by chance


def _combined(raw: Json) -> None:
    for name in ("most", "speed", "resize cost", "yields", "preemptable", "cooldown", "grace"):
        LIES[name](raw)


@dataclass(slots=True)
class LyingDay:
    """seed: of the day. lie: of LIES, ALL or TRUTH."""

    seed: int
    lie: str = TRUTH
    gangs: list[TenantGang] = field(default_factory=list)
    deserved: dict[str, int] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)  # who had to wait for what its queue deserves
    _since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dice, left = Random(self.seed), NODES * NODE_GPUS
        for tenant in TENANTS[:-1]:
            self.deserved[tenant] = dice.choice((4, 4, 6))
            left -= self.deserved[tenant]
        self.deserved[TENANTS[-1]] = left
        for tenant in TENANTS:
            load, drawn = dice.choice((0.6, 1.2, 2.0)), 0.0
            early = (
                tenant == TENANTS[0] and dice.random() < 0.5
            )  # it borrows what others want later
            latest_s = int((0.1 if early else 0.8) * DAY_S)
            asked = self.deserved[tenant] * DAY_S * load
            while drawn < asked:
                pods = dice.choice((1, 2, 2, 4))
                runs_s = float(round(dice.lognormvariate(5.6, 0.7)))
                drawn += pods * runs_s
                at_s = float(dice.randrange(latest_s))
                name = f"{tenant}-{len(self.gangs)}"
                self.gangs.append(TenantGang(tenant, name, at_s, pods, runs_s))
            at_s, least = float(dice.randrange(450)), dice.choice((1, 1, 2))
            self.gangs.append(TenantGang(tenant, f"{tenant}-e", at_s, 8, inf, least))

    def documents(self) -> Iterator[Json]:
        node = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(NODE_GPUS)}
        notes = {"lockstep.dev/count": str(NODES)}
        yield _object("v1", "Node", "n", annotations=notes, status={"allocatable": node})
        yield _object("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000)
        for tenant, amount in self.deserved.items():
            spec = {"weight": amount, "deserved": {GPU: amount}, "reservations": False}
            yield _object("scheduling.volcano.sh/v1beta1", "Queue", tenant, spec=spec)
        if self.lie in ("budget", ALL):
            spec = {"maxUnavailable": 0, "selector": ITS_PODS}
            yield _object("policy/v1", "PodDisruptionBudget", "b", "liar", spec=spec)
        lie = _combined if self.lie == ALL else LIES.get(self.lie, _nothing)
        for gang in self.gangs:
            for raw in self._of(gang):
                if gang.tenant == TENANTS[0]:
                    lie(raw)
                yield raw

    def _of(self, gang: TenantGang) -> Iterator[Json]:
        if not self._is_cut(gang):
            yield from _objects(gang)
            return
        for number in range(gang.least or gang.pods):
            each = replace(gang, name=f"{gang.name}-{number}", pods=1)
            if gang.least:  # as many small ones as it has members at least
                each = replace(each, pods=max(1, gang.pods // gang.least), least=1)
            yield from _objects(each)

    def _is_cut(self, gang: TenantGang) -> bool:
        return self.lie == "cut" and gang.tenant == TENANTS[0]

    def run(self) -> dict[str, float]:
        """Returns the GPU-hours of each tenant, until the evictions of its pods."""
        placed = [(SourceLocation("day", i), raw) for i, raw in enumerate(self.documents())]
        read = scenario.read(placed, ("lockstep",), ())
        runs = {gang.name: gang.runs_s for gang in self.gangs if not gang.least}
        for uid, plan in read.plans.items():
            name = uid.rsplit("/", 1)[-1].rsplit("-", 1)[0]
            if name in runs:  # whatever it says
                read.plans[uid] = replace(plan, runs_s=runs[name])
        scheduler = new_scheduler(max_grace_s=MAX_GRACE_S)
        simulation = Simulation(read, scheduler, seed=self.seed + 1, until_s=DAY_S)
        result = simulation.run(self._look)
        seconds = dict.fromkeys(TENANTS, 0.0)
        for at_s, job, gpus in result.held:
            seconds[job.split("/")[0]] += gpus * (DAY_S - at_s)
        lies = self.lie in ("grace", ALL)
        for each in result.evicted:
            grace_s = MAX_GRACE_S if lies and each.namespace == TENANTS[0] else GRACE_S
            seconds[each.namespace] -= min(grace_s, DAY_S - each.at_s)
        return {tenant: seconds[tenant] / 3600.0 for tenant in TENANTS}

    def _look(self, simulation: Simulation) -> None:
        now, still = simulation.now, dict[str, float]()
        for tenant in TENANTS[1:]:
            if (name := self._waits_within_deserved(simulation.scheduler, tenant)) is not None:
                since = still[name] = self._since.get(name, now)
                if now > since + MAX_GRACE_S + SLACK_S:
                    self.late.append(f"{name} at {now:.0f} s, since {since:.0f} s")
        self._since = still

    def _waits_within_deserved(self, scheduler: Scheduler, tenant: str) -> str | None:
        """The first gang of the tenant that is pending, if its queue would stay within what it deserves."""
        queue = scheduler.queues.by_name.get(tenant)
        waiting = [
            gang
            for gang in scheduler.state.pending.waiting.values()
            if gang.queue == tenant and gang.missing()
        ]
        if queue is None or not waiting:
            return None
        first = min(waiting, key=lambda gang: (gang.created, gang.key))
        need = first.attempt.need.get(GPU, 0)
        used = queue.used.get(GPU, 0)
        unit = scheduler.queues.currency.counted({GPU: 1})[GPU]
        return first.name if used + need <= self.deserved[tenant] * unit else None


@dataclass(slots=True)
class Gains:
    """By lie: GPU-hours of the liar on lying days and on the same days told truly, and the gains of single days."""

    hours: dict[str, list[float]] = field(default_factory=dict)
    days: dict[str, list[float]] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)

    def live(self, seed: int, *lies: str) -> None:
        """The day told truly, and with these lies; none: with some of all lies, in turn."""
        true, every = LyingDay(seed).run()[TENANTS[0]], [*LIES, ALL]
        turn = range(LIES_A_DAY * seed, LIES_A_DAY * (seed + 1))
        for lie in lies or [every[number % len(every)] for number in turn]:
            day = LyingDay(seed, lie)
            lied = day.run()[TENANTS[0]]
            sums = self.hours.setdefault(day.lie, [0.0, 0.0])
            sums[0], sums[1] = sums[0] + lied, sums[1] + true
            self.days.setdefault(day.lie, []).append(lied - true)
            self.late += [f"day {seed}, {day.lie}: {each}" for each in day.late]

    def of(self, lie: str) -> tuple[float, float]:
        """What the lie gains, and its standard error, as parts of the GPU-hours without it."""
        (lied, true), gains = self.hours[lie], self.days[lie]
        spread = stdev(gains) * len(gains) ** 0.5 if len(gains) > 1 else inf
        return lied / true - 1, spread / true

    def pays(self) -> dict[str, float]:
        """The lies that gain more than MOST_GAINED, beyond doubt, and what."""
        found = {lie: self.of(lie) for lie in self.hours}
        return {
            lie: gain for lie, (gain, error) in found.items() if gain > MOST_GAINED + ERRORS * error
        }

    def table(self) -> str:
        """The lies, the one that gained most first."""
        lines = []
        for lie in sorted(self.hours, key=lambda lie: -self.of(lie)[0]):
            gain, error = self.of(lie)
            lines.append(
                f"{lie:18}{100 * gain:+6.1f} % +-{100 * error:5.1f}  {len(self.days[lie])} days"
            )
        return "\n".join(lines)


def _object(version: str, kind: str, name: str, namespace: str = "", **rest: object) -> Json:
    meta: Json = {"name": name, "annotations": rest.pop("annotations", {})}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": meta, **deepcopy(rest)}


def _template(gang: TenantGang, runs_for: str | None) -> Json:
    notes = {names.GRACE: f"{GRACE_S}s"} | ({names.RUNS_FOR: runs_for} if runs_for else {})
    container = {"name": "m", "image": "i", "resources": {"limits": {GPU: "1"}}}
    spec = {"terminationGracePeriodSeconds": GRACE_S, "containers": [container]}
    return {"metadata": {"annotations": notes, "labels": {"tenant": gang.tenant}}, "spec": spec}


def _objects(gang: TenantGang) -> Iterator[Json]:
    arrives, space = {scenario.ARRIVES: f"{gang.at_s:g}s"}, gang.tenant
    if gang.least:
        task = {"name": "w", "replicas": gang.pods, "minAvailable": gang.least}
        notes = {**arrives, names.SPEED: _speed(0.9), names.RESIZE_COST: "20s"}
        spec: Json = {"schedulerName": "lockstep", "queue": space, "minAvailable": gang.least}
        spec |= {"plugins": {"elastic": []}, "tasks": [{**task, "template": _template(gang, None)}]}
        yield _object(
            "batch.volcano.sh/v1alpha1", "Job", gang.name, space, annotations=notes, spec=spec
        )
        return
    spec = {"minMember": gang.pods, "queue": space}
    version = "scheduling.volcano.sh/v1beta1"
    yield _object(version, "PodGroup", gang.name, space, annotations=arrives, spec=spec)
    for number in range(gang.pods):
        made = _template(gang, f"{gang.runs_s:g}s")
        raw = _object("v1", "Pod", f"{gang.name}-{number}", space)
        notes = {**arrives, scenario.RECREATE: "true", "scheduling.k8s.io/group-name": gang.name}
        raw["metadata"] |= {"labels": made["metadata"]["labels"]}
        raw["metadata"]["annotations"] = {**made["metadata"]["annotations"], **notes}
        raw["spec"] = {**made["spec"], "schedulerName": "lockstep"}
        yield raw


if __name__ == "__main__":  # python -m tests.simulation.lying_days FIRST COUNT
    found = Gains()
    for day in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        found.live(day)
    print(found.table(), *found.late[:20], sep="\n")
