"""The reason why a gang cannot be tried yet: pods are missing, gated, or being evicted."""

from collections import Counter

from central.model import controller_gangs, native_podgroup, wording
from central.model.pending_causes import GATED, INVALID, PODS_MISSING, PREEMPTED
from central.scheduler.quarantine import PODGROUP, Quarantine
from central.scheduler.state.gangs import Gang


def not_ready(gang: Gang, missing: int, quarantine: Quarantine) -> tuple[str, str]:
    """The cause, of pending_causes.CAUSES, and the reason; both empty: the gang can be tried. missing: Gang.missing(),
    which the caller has computed."""
    counts, group = gang.counts, gang.object
    if gang.preemption.preempted_for and _is_breaking(gang):
        return PREEMPTED, f"{eviction(gang)}: its pods are being evicted"
    if group is not None and group.error:
        return INVALID, group.error
    if group is not None and group.priority_class and gang.class_priority is None:
        name = group.priority_class
        absence = quarantine.absence("PriorityClass", name)
        return INVALID, f"spec.priorityClassName: PriorityClass {name} {absence}"
    if gang.key[2] and group is None and _needs_object(gang, quarantine):
        return INVALID, _no_podgroup(gang, quarantine)
    if counts.gated:
        gates = wording.some({name for pod in gang.members.values() for name in pod.seen.gates})
        held = f"{counts.gated} of {len(gang.members)} pods are held by scheduling gates"
        return GATED, f"{held} ({gates})" if gates else held
    if missing and len(gang.pods_to_start(missing)) < missing:
        if counts.blocked:
            return INVALID, counts.blocked
        clauses = (shortage(gang, missing), *_set_aside(gang, quarantine))
        return PODS_MISSING, "; ".join(clauses)
    if gang.subgroups and counts.waiting and not gang.division().units():
        return PODS_MISSING, gang.division().incomplete_group()
    return (INVALID, counts.blocked) if counts.blocked and not counts.waiting else ("", "")


def end_eviction(gang: Gang) -> None:
    """Ends a preemption that leaves the gang its minimum. Until none of its pods is being evicted it counts as
    preempted, because each uses disruption budgets."""
    standing = gang.preemption
    if not standing.preempted_for or _is_breaking(gang):
        return
    if not any(pod.evicting for pod in gang.counts.placed):
        standing.preempted_for = ""


def shortage(gang: Gang, missing: int) -> str:
    """Returns what a gang below its minimum lacks to start. missing: Gang.missing()."""
    if gang.short_tasks():
        return _short_of_tasks(gang)
    if gang.subgroups and (absent := gang.division().needed.absent):
        return absent
    if len(gang.members) < gang.minimum:
        return f"needs {gang.minimum} pods to start, {len(gang.members)} exist"
    if gang.subgroups:
        return _short_of_groups(gang)
    return _short_of_pods(gang, missing)


def _set_aside(gang: Gang, quarantine: Quarantine) -> list[str]:
    """Returns a clause on its pods that a bug keeps out, which names the first of them; empty: there are none."""
    aside = quarantine.members_aside(gang.key)
    if not aside:
        return []
    first = min(aside, key=lambda found: found.name)
    others = f" and {wording.counted(len(aside) - 1, 'other')}" if len(aside) > 1 else ""
    return [f"pod {first.name}{others} {'are' if others else 'is'} {first.why}"]


def eviction(gang: Gang) -> str:
    """Returns for which gang some of its pods are or were evicted, as a clause; empty: for none."""
    standing = gang.preemption
    if not standing.preempted_for:
        return ""
    if standing.suspended:
        return f"suspended for {standing.preempted_for} after its quantum"
    return f"preempted by {standing.preempted_for}"


def _needs_object(gang: Gang, quarantine: Quarantine) -> bool:
    """Pods of a controller whose object is not known start one by one, unless a bug keeps it out."""
    if gang.counts.label_min:
        return False
    is_aside = quarantine.content(PODGROUP, gang.key[:2]) is not None
    return is_aside or not controller_gangs.is_controllers(gang.name)


def _no_podgroup(gang: Gang, quarantine: Quarantine) -> str:
    name = native_podgroup.podgroup_name(gang.name)
    why = quarantine.absence("PodGroup", gang.name, gang.namespace)
    if native_podgroup.is_native(gang.name):
        return f"PodGroup {name} of scheduling.k8s.io {why}"
    return f"PodGroup {name} {why}"


def _is_breaking(gang: Gang) -> bool:
    """Returns whether evictions leave the gang with fewer pods than its minimum."""
    placed = gang.counts.placed
    staying = sum(not pod.evicting for pod in placed)
    return staying < len(placed) and staying < gang.minimum


def _short_of_tasks(gang: Gang) -> str:
    """Names the first task that has too few pods, else what the gang as a whole lacks."""
    missing = gang.missing()
    waiting = Counter(pod.seen.task for pod in gang.counts.waiting)
    for task, short in sorted(gang.short_tasks().items()):
        if waiting[task] < short:
            pods = wording.plural(short, "pod")
            return f"task {task} needs {short} more {pods} to start, {waiting[task]} pending"
    return _short_of_pods(gang, missing)


def _short_of_pods(gang: Gang, missing: int) -> str:
    pods = wording.plural(missing, "pod")
    return f"needs {missing} more {pods} to start, {len(gang.counts.waiting)} pending"


def _short_of_groups(gang: Gang) -> str:
    """Names the subgroups that have too few pods."""
    division, missing = gang.division(), gang.missing()
    return division.shortage() or (
        f"needs {missing} more {wording.plural(missing, 'pod')} in complete subgroups to start; "
        + (division.incomplete_group() or f"{len(gang.counts.waiting)} pending")
    )
