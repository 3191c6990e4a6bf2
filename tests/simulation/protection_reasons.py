"""Counts again, with plain loops, how many pods each rule protects from a pending gang."""

import re
from collections import Counter
from collections.abc import Callable, Collection

from central.model.defaults import ACROSS_NONE
from central.model.facts import PodSpec
from central.scheduler.inventory.pods import Pod
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import GPU, GPU_SHARE, MIG
from tests.simulation import recount

RULES = {
    "namespace": r"(\d+) pods? (?:is in another namespace|are in other namespaces) \(--preempt-across none\)",
    "preemptable": r"(\d+) pods? (?:is|are) not preemptable",
    "young": r"(\d+) pods? (?:has not reached its|have not reached their) minimum run time \((?:until|the first at) [-\d]+ [:\d]+ UTC\)",
    "budget": r"(\d+) pods? (?:is|are) covered by (?:a disruption budget|disruption budgets)",
    "scheduler": r"(\d+) pods? (?:is another scheduler's|are other schedulers')",
}
WITHOUT_QUEUES = (
    r"its own pods have preemptionPolicy Never"
    r"|\d+ pods? (?:[^,;:]|:\d)*(, \d+ pods? (?:[^,;:]|:\d)*)*"
)


def leaves(_: Gang, pod: Pod) -> bool:
    return pod.leaving


def left_before(gang: Gang, pod: Pod) -> bool:
    """Without evictions that serve no claim and that the API has not confirmed: some, as of gangs that are incomplete,
    are decided after the sentence, in the same cycle."""
    return pod.seen.deleting or (pod.evicting and bool(gang.preemption.preempted_for))


def assert_counts_true(
    scheduler: Scheduler, gang: Gang, clause: str, queues: Collection[str]
) -> None:
    """queues: of which the clause speaks; empty: of all that runs."""
    if clause == "its own pods have preemptionPolicy Never":
        assert not all(pod.seen.preempts for pod in recount.waiting(gang))
        return
    specs = [spec for spec, _ in scheduler.refused[gang.key].request.groups]
    if any(spec.rules is not None or spec.matched or spec.volumes is not None for spec in specs):
        return  # which nodes they may use is not counted here
    views = [_counts(scheduler, gang, specs, queues, goes) for goes in (leaves, left_before)]
    for rule, pattern in RULES.items():
        found = re.search(pattern, clause)
        said = int(found[1]) if found else 0
        true = {counts[rule] for counts in views}
        assert said in true, f"{rule}: {true} pods"
    if not queues:
        for word, pattern in (
            ("equal", rf"(\d+) pods? ha(?:s|ve) priority {gang.priority} or higher"),
            ("free", r"(\d+) pods? of lower priority would not free enough"),
        ):
            found = re.search(pattern, clause)
            true = {counts[word] for counts in views}
            assert (int(found[1]) if found else 0) in true, f"{word}: {true} pods"


def _counts(
    scheduler: Scheduler,
    gang: Gang,
    specs: list[PodSpec],
    queues: Collection[str],
    goes: Callable[[Gang, Pod], bool],
) -> Counter[str]:
    state, counts = scheduler.state, Counter[str]()
    devices = all(map(_has_device, specs))

    def counts_here(pod: Pod) -> bool:
        node = state.nodes.get(pod.node)
        if node is None or node.seen is None or not pod.alive or pod.seen.deleting:
            return False
        may_use = any(not recount.refusal(spec, node) for spec in specs)
        return may_use and (not devices or _has_device(pod.spec))

    for pod in state.pods.values():
        if not pod.seen.ours and not queues and devices and counts_here(pod):
            counts["scheduler"] += 1
    for other in state.gangs.values():
        if other is gang or (queues and other.queue not in queues):
            continue
        pods = [pod for pod in other.members.values() if counts_here(pod) and not goes(other, pod)]
        if not pods:
            continue
        same = not queues or other.queue == gang.queue
        if same and other.priority >= gang.priority:
            counts["equal"] += len(pods)
            continue
        rules = _rules(scheduler, gang, other, pods, goes)
        counts += rules
        counts["free"] += len(pods) - rules.total()
    return counts


def _rules(
    scheduler: Scheduler,
    gang: Gang,
    other: Gang,
    pods: list[Pod],
    goes: Callable[[Gang, Pod], bool],
) -> Counter[str]:
    policy, now = scheduler.policy, scheduler.state.now
    across = policy.preempt_across == ACROSS_NONE and other.queue == gang.queue
    if across and other.namespace != gang.namespace:
        return Counter(namespace=len(pods))
    staying = [
        pod for pod in other.members.values() if pod.node and pod.alive and not goes(other, pod)
    ]
    whole = other.object is not None and (other.object.subgroups or other.object.evicted_whole)
    least = max(other.minimum, sum(count for _, count in other.task_min))
    surplus = 0 if whole else max(0, len(staying) - least)

    def fixed(pod: Pod) -> bool:
        group = other.object.preemptable if other.object is not None else None
        own = pod.seen.preemptable
        return (group if own is None else own) is False

    counts = Counter[str]()
    queue = scheduler.queues.by_name.get(other.queue)
    set_by = [each.seen.min_runtime_s for each in (queue.path if queue is not None else ())]
    least_s = next((each for each in set_by if each is not None), policy.min_runtime_s)
    # Marks of pods and budgets protect nothing that a queue has above its share from another queue.
    own = not scheduler.queues.enabled or other.queue == gang.queue
    if own:
        least_s = max([least_s, *(pod.seen.cooldown_s for pod in other.members.values())])
    times = [pod.seen.started if pod.seen.started is not None else pod.since for pod in staying]
    began = min((time for time in times if time is not None), default=now)
    if own and any(map(fixed, staying)):
        counts["preemptable"] = sum(map(fixed, pods)) if surplus else len(pods)
    elif least_s and now < began + least_s:
        counts["young"] = max(0, len(pods) - surplus)
    budgets = scheduler.budgets
    if own and budgets.seen and counts.total() < len(pods):
        left = _left(scheduler)
        units = [[pod] for pod in pods] if surplus else [staying]
        kept = 0
        for unit in units:
            uses = Counter(name for pod in unit for name in budgets.covering(pod))
            double = any(len(budgets.covering(pod)) > 1 for pod in unit)
            if double or any(n > left[name] for name, n in uses.items()):
                kept += 1 if surplus else len(pods)
        counts["budget"] = min(kept, len(pods) - counts.total())
    return counts


def _left(scheduler: Scheduler) -> dict[tuple[str, str], int]:
    """What each budget allows, without the evictions that it does not show yet."""
    budgets = scheduler.budgets
    left = {name: budget.allowed for name, budget in budgets.seen.items()}
    for pod in scheduler.state.pods.values():
        for name in budgets.covering(pod) if pod.evicting else ():
            left[name] -= pod.seen.name not in budgets.seen[name].disrupted
    return left


def _has_device(spec: PodSpec) -> bool:
    return any(
        n and (name in (GPU, GPU_SHARE) or name.startswith(MIG)) for name, n in spec.requests
    )
