"""The tree of queues, with what the gangs of each use and request.

Sums change gang by gang, when a gang changes. An invalid queue disables itself and its descendants,
with a reason; other queues are not affected. Without Queue objects nothing is counted, and all
gangs that name no queue are in one. A gang that names a queue then waits: the queue does not exist.

A queue with `shareBy: namespace` has a child for each namespace with gangs in it, NAMESPACE/QUEUE, with no terms of its
own. So order, fair shares and reclaim between namespaces are those between queues.

Design: docs/design/queues.md
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from fractions import Fraction
from math import inf, log
from operator import attrgetter
from typing import Any, TypeVar

from central.model import facts
from central.model.defaults import ALL_RESOURCES, USAGE_HALF_LIFE_S
from central.model.limits import QUEUE_DEPTH
from central.model.pod_rules import Labels
from central.model.resources import DEFAULT, GPU_EQUIVALENTS, ROOT, Sums, add, requested
from central.scheduler.inventory.pods import Pod
from central.scheduler.quarantine import Quarantine
from central.scheduler.queues import access, queue_capacity
from central.scheduler.queues.claim_in_flight import ClaimInFlight, ClaimsInFlight, LeavingPod
from central.scheduler.queues.fifo import FifoQueues, is_ready
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.scheduler.queues.queue_terms import QueueTerms, terms_of
from central.scheduler.queues.queue_tree_node import Queue, QueueHistory, TermsInUse
from central.scheduler.queues.share_table import ShareTable
from central.scheduler.queues.tenant_limits import user_of
from central.scheduler.queues.usage_history import DecayedUsage
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.gangs import Account, Gang, GangKey
from protos.common.near_names import did_you_mean

Value = TypeVar("Value", int, str)

SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
PAST_USES_MOST = 1_000  # of queues that are not there now
COMPARED = 100  # names of queues, for one that does not exist


class Queues:
    def __init__(
        self,
        half_life_s: float = USAGE_HALF_LIFE_S,
        slice_fractions: Mapping[str, Fraction] | None = None,
        quarantine: Quarantine | None = None,
        not_ready: AbstractSet[str] = frozenset(),
        by_weight: AbstractSet[str] = frozenset(),
    ) -> None:
        """slice_fractions: see GpuCurrency. not_ready: nodes, of ClusterState. by_weight: see is_claimed()"""
        self._quarantine = quarantine if quarantine is not None else Quarantine()
        self.half_life_s = half_life_s  # of past usage; 0: it does not count
        self.currency = GpuCurrency(slice_fractions)
        self._by_weight = by_weight
        self.now = 0.0
        self.fifo = FifoQueues()
        self.by_name: dict[str, Queue] = {}
        self.root = Queue.without_object(ROOT)
        self.total: Sums = {}  # capacity to share
        self.cache: dict[tuple[object, ...], Any] = {}  # derived values, until a sum changes
        self.share_tables: dict[str, ShareTable] = {}  # by resource, of this tree
        self.in_flight = ClaimsInFlight(not_ready)
        self.version = 0  # counts changes of sums, claims and capacity
        self._seen: dict[str, facts.QueueSeen] = {}
        self._terms: dict[str, QueueTerms] = {}
        self._names: list[str] = []  # of all Queue objects, sorted
        self._shared: AbstractSet[str] = frozenset()  # names of queues that their namespaces share
        self._namespace_queues: dict[str, str] = {}
        self._namespace_labels: dict[str, Labels] = {}
        self._priorities = dict(SYSTEM_PRIORITIES)
        # past use of queues that are not there: that a leader before wrote down, or of namespaces without gangs
        self._kept: dict[str, tuple[float, facts.QueuePast]] = {}
        self._parts: dict[str, QueueHistory] = {}  # of namespaces in the state before, likewise
        self._stale = True  # whether a Queue changed since the tree was built
        self.settle()

    @property
    def enabled(self) -> bool:
        return bool(self._seen)

    def apply(self, fact: facts.Rule) -> bool:
        """Returns whether anything changed. Then settle() must follow before the tree is read, and every gang must be
        updated: once for all facts of a cycle."""
        match fact:
            case facts.QueueSeen():
                return self._apply_queue(fact)
            case facts.QueueGone():
                self._terms.pop(fact.name, None)
                gone = self._seen.pop(fact.name, None) is not None
                self._stale |= gone
                return gone
            case facts.NamespaceSeen() | facts.NamespaceGone():
                relabelled = self._relabel(fact)
                queue = fact.queue if isinstance(fact, facts.NamespaceSeen) else ""
                return _put(self._namespace_queues, fact.name, queue or None) or relabelled
            case facts.PrioritySeen():
                return _put(self._priorities, fact.name, fact.value)
            case facts.PriorityGone():
                return _put(self._priorities, fact.name, None)
            case facts.PastUsageSeen():
                self._kept = {each.name: (fact.at, each) for each in fact.queues}
                self._stale |= bool(self._kept)
                return bool(self._kept)

    def _apply_queue(self, fact: facts.QueueSeen) -> bool:
        if self._seen.get(fact.name) == fact:
            return False
        terms = terms_of(fact, self.currency)  # first: it may fail on the fact
        self._seen[fact.name], self._terms[fact.name] = fact, terms
        self._stale = True
        return True

    def settle(self) -> bool:
        """Builds the tree if a Queue changed since the last call. Returns whether one did. Building takes time for all
        queues, so it is done once for all facts of a cycle."""
        if not self._stale:
            return False
        before = (self.root, self.by_name)
        try:
            self._build_tree()
        except Exception:
            self.root, self.by_name = before  # whole, for the rebuild that follows
            raise
        self._stale = False
        return True

    def _relabel(self, fact: facts.NamespaceSeen | facts.NamespaceGone) -> bool:
        """Returns whether a queue's rule may read the namespace's labels, and they changed."""
        before = self._namespace_labels.pop(fact.name, ())
        after = fact.labels if isinstance(fact, facts.NamespaceSeen) else ()
        if after:
            self._namespace_labels[fact.name] = after
        return self.terms.restricted and before != after

    def recorded(self, labels: Mapping[str, Mapping[str, str]]) -> Iterator[facts.Rule]:
        """The facts that make up the tree. labels: of the namespaces, by name."""
        yield from self._seen.values()
        for name in {**labels, **self._namespace_queues}:
            own = tuple(sorted(labels.get(name, {}).items()))
            yield facts.NamespaceSeen(name, own, self._namespace_queues.get(name, ""))
        for name, value in self._priorities.items():
            yield facts.PrioritySeen(name, value)
        if past := tuple(self.absent_past()):
            yield facts.PastUsageSeen(self.now, past)

    def histories(self) -> dict[str, QueueHistory]:
        """Returns what queues have used and received until now, by name."""
        self.record_all_usage()
        return {name: queue.history() for name, queue in self.by_name.items()}

    def absent_past(self) -> Iterator[facts.QueuePast]:
        """The past use, as of now, of namespaces that have no gangs in their queue."""
        kept = {name: DecayedUsage.kept(at, past.means) for name, (at, past) in self._kept.items()}
        kept |= {name: history.past_usage for name, history in self._parts.items()}
        for name, usage in kept.items() if self.half_life_s else ():
            if means := usage.means(self.now, {}, {}, self.half_life_s):
                yield facts.QueuePast(name, tuple(sorted(means.items())))

    def adopt_histories(self, before: Mapping[str, QueueHistory]) -> None:
        """The part of a namespace takes its own over when the first of its gangs is counted."""
        for name, old in before.items():
            if (queue := self.by_name.get(name)) is not None:
                queue.keep_history(old, self.now)
            elif "/" in name:
                self._parts[name] = old

    def nearest(self, name: str, term: Callable[[facts.QueueSeen], float | None]) -> float | None:
        """Returns the term of the queue, or of the nearest one above it that sets it; None: none does."""
        path = self.by_name[name].path if name in self.by_name else ()
        return next((each for above in path if (each := term(above.seen)) is not None), None)

    # --- gangs -----------------------------------------------------------------

    def counts(self, gang: Gang) -> bool:
        """Returns whether a queue is charged for the gang: any that it names, or `default` beside other queues."""
        return not gang.foreign and (self.enabled or self.name_of(gang) != DEFAULT)

    def name_of(self, gang: Gang) -> str:
        """The queue named by the PodGroup, else by the pods, else by the namespace, else
        default."""
        named = gang.object.queue if gang.object is not None else ""
        if named in ("", DEFAULT):
            named = gang.counts.queue or self._namespace_queues.get(gang.namespace, "") or DEFAULT
        # No queue's name has a slash, so this one does not exist. With it, it could be the part of a namespace.
        return named.replace("/", "_")

    def priority_of(self, gang: Gang) -> int | None:
        """Returns the value of the PriorityClass that the PodGroup names; None: no such class, or none named."""
        return self._priorities.get(gang.object.priority_class) if gang.object else None

    def update(self, gang: Gang) -> bool:
        """Counts the gang as it is now. Returns whether another gang of its fifo queue may
        start."""
        if gang.class_priority != (priority := self.priority_of(gang)):
            gang.class_priority = priority
            self.cache.clear()  # sentences say it
        account = self._account(gang) if self.counts(gang) else None
        if account != gang.account:
            self.forget(gang, stays_in=account.queue if account is not None else "")
            if account is not None:
                queue = self.by_name.get(account.queue) or self._add_unnamed(account.queue)
                queue.add(gang, account.used)
                self._charge(queue, gang, account, 1)
                gang.account = account
        elif account is not None:
            self.by_name[account.queue].usage_by_priority.update(gang)
        if account is not None and gang.counts.deleting:
            self._note_leaving(gang)
        name = account.queue if account is not None else ""
        fifo = name and account is not None and account.demand and self.by_name[name].seen.fifo
        return self.fifo.update(gang, name if fifo and is_ready(gang) else "")

    def _note_leaving(self, gang: Gang) -> None:
        held = [pod for pod in gang.counts.deleting if pod.node and pod.alive]
        if self.in_flight.note(self._leaving((gang, pod) for pod in held)):
            self._changed()

    def forget(self, gang: Gang, *, stays_in: str = "") -> None:
        """stays_in: the queue in which it is about to be counted again."""
        account = gang.account
        if account is None:
            return
        gang.account = None
        queue = self.by_name[account.queue]
        queue.remove(gang)
        self._charge(queue, gang, account, -1)
        absent = not self.is_declared(queue.name) and queue.name != stays_in
        if absent and not queue.gangs:
            del self.by_name[queue.name]
            self.in_flight.outdated = True
            if queue.parent is not None:
                self._leave(queue.parent, queue)

    def _account(self, gang: Gang) -> Account:
        placed = (pod for pod in gang.members.values() if pod.node and pod.alive)
        name, used = self.name_of(gang), self.currency.counted(sums_of(placed))
        user = user_of(gang) if self.terms.limits_users else ""
        if self.terms.restricted and self.refusing_queue(gang, name) is not None:
            charged = self._charged_instead(gang, name) if used else name
            return Account(charged, used, {}, user, gang.never_evicted)
        if name in self._shared:
            name = f"{gang.namespace}/{name}"
        demand = self.currency.counted(_demand(gang))
        return Account(name, used, demand, user, gang.never_evicted)

    def refusing_queue(self, gang: Gang, name: str) -> Queue | None:
        """The queue whose rule excludes the gang from the queue with this name; None: it may use it."""
        queue = self.by_name.get(name)
        labels = dict(self._namespace_labels.get(gang.namespace, ()))
        return None if queue is None else access.refusing_queue(queue, gang, labels)

    def _charged_instead(self, gang: Gang, name: str) -> str:
        """The queue that is charged for running pods of a gang that has moved to a queue that it may not use:
        the one before, so that nobody leaves a limit behind by naming another queue."""
        before = gang.account.queue if gang.account is not None else DEFAULT
        known = before in self.by_name and self.refusing_queue(gang, before) is None
        return before if before != name and known else DEFAULT

    def _charge(self, queue: Queue, gang: Gang, account: Account, times: int) -> None:
        self._changed()
        for table in self.share_tables.values():
            table.outdate(queue.path)
        self.in_flight.usage_changed = True
        add(queue.demand, account.demand, times)
        if account.demand:
            if not (queue.is_waiting or self.half_life_s):
                for above in queue.path[1:]:
                    above.receive_below(self.now, self.total)
            queue.count_waiting(times, self.now)
        if account.used:
            for above in queue.path:
                self.record_usage(above)
                above.charge(gang.namespace, account.user, account.used, times)

    def record_usage(self, queue: Queue) -> None:
        """Adds the usage until now to the history, before the usage changes."""
        if self.half_life_s:
            queue.past_usage.advance(self.now, queue.used, queue.uncharged, self.half_life_s)
        else:
            queue.receive(self.now, self.total)

    def received(self, queue: Queue, ahead_s: float = 0.0) -> float:
        """Returns the seconds in which the queue had everything, divided by its weight. Where past use decays, what is
        left of them, and the next ahead_s as now."""
        self.record_usage(queue)
        if not self.half_life_s:
            return queue.received
        mean = queue.past_share(self.now + ahead_s, self.half_life_s, self.total)
        return mean * self.half_life_s / log(2)

    def record_all_usage(self) -> None:
        """Adds the usage until now to the history of each queue in the tree. Called before a change of how usage
        counts."""
        for queue in self.root:
            self.record_usage(queue)

    def is_declared(self, name: str) -> bool:
        """Returns whether there is such a queue. Else its name is the text of somebody whose gang names it."""
        return name in self._seen or name in (ROOT, DEFAULT)

    def _add_unnamed(self, name: str) -> Queue:
        """A queue that no object names: the part of a namespace, or one that does not exist."""
        queue = self.by_name[name] = Queue.without_object(name)
        above = name.rpartition("/")[2]
        if above not in self._shared:
            queue.error = self._absent(name)
            return queue
        parent = queue.parent = self.by_name[above]
        queue.seen = facts.QueueSeen(name, parent=above, reclaimable=True, fifo=parent.seen.fifo)
        queue.path = (queue, *parent.path)
        insort(parent.children, queue, key=attrgetter("name"))
        self._restore_past(queue)
        if (history := self._parts.pop(name, None)) is not None:
            queue.keep_history(history, self.now)
        self.in_flight.outdated = True
        return queue

    def _leave(self, parent: Queue, queue: Queue) -> None:
        """The namespace has no gang in the queue any more. Its past use counts when it comes back."""
        parent.children.remove(queue)
        if past := queue.past_usage.means(self.now, {}, {}, self.half_life_s or inf):
            self._kept.pop(queue.name, None)
            self._kept[queue.name] = (
                self.now,
                facts.QueuePast(queue.name, tuple(sorted(past.items()))),
            )
            if len(self._kept) > PAST_USES_MOST:
                del self._kept[next(iter(self._kept))]

    def _restore_past(self, queue: Queue) -> None:
        if self._kept and (kept := self._kept.pop(queue.name, None)) is not None:
            at, past = kept
            queue.past_usage = DecayedUsage.kept(min(at, self.now), past.means)

    def _absent(self, name: str) -> str:
        return f"queue {name} {self._quarantine.absence('Queue', name)}"

    def why_invalid(self, queue: Queue) -> str:
        """The queue's error, with the queue that may be meant instead of one that does not exist."""
        if not queue.error or queue.name in self._seen:
            return queue.error
        return self._absent(queue.name) + self._near(queue.name)

    def _near(self, name: str) -> str:
        """Asks for the queue that may be meant. Of many queues only those next to it by name are compared: any pod may
        name a queue that does not exist."""
        at = bisect_left(self._names, name)
        beside = self._names[max(0, at - COMPARED // 2) : at + COMPARED // 2]
        return did_you_mean(name, {*beside, DEFAULT})

    def add_claim(
        self,
        gang: Gang,
        groups: Iterable[tuple[facts.PodSpec, int]],
        victims: Iterable[tuple[Gang, Pod]] = (),
        moved: Iterable[Pod] = (),
    ) -> None:
        """Pods terminate, and the gang will take their place with these pods (by class, with counts). moved: victims
        that come back."""
        need = self.currency.counted(requested(groups))
        uids = frozenset(pod.seen.uid for pod in moved)
        self.in_flight.add(ClaimInFlight(gang, need, tuple(self._leaving(victims)), uids))
        self._changed()

    def _leaving(self, pods: Iterable[tuple[Gang, Pod]]) -> Iterator[LeavingPod]:
        amounts: dict[int, Sums] = {}  # by id of the spec: a pod class is one object
        for gang, pod in pods:
            if (requests := amounts.get(id(pod.spec))) is None:
                requests = amounts[id(pod.spec)] = self.currency.counted(sums_of([pod]))
            yield LeavingPod(gang, pod, requests)

    @property
    def claims(self) -> Mapping[GangKey, ClaimInFlight]:
        """The claims in flight, by the claiming gang."""
        return self.in_flight.by_gang

    def end_claim(self, key: GangKey) -> None:
        if self.in_flight.end(key):
            self._changed()

    def staying(self, gang: Gang) -> Sums:
        """Returns what the gang, which has an account, uses without its terminating pods."""
        return self.in_flight.staying(gang, self.by_name)

    def _changed(self) -> None:
        self.cache.clear()
        self.version += 1

    # --- the tree --------------------------------------------------------------

    def measure_capacity(
        self, snapshot: Snapshot, unschedulable: frozenset[str] | set[str]
    ) -> None:
        """Sets the capacity to share: what the queues use and what is free on schedulable nodes.
        What pods outside the queues use is not shared."""
        total = queue_capacity.total(
            snapshot, unschedulable, self.currency, self.root.used, self.is_shared
        )
        if total != self.total:
            self.record_all_usage()
            self.total = total
            self._weigh_deserved()
            self._changed()

    def _weigh_deserved(self) -> None:
        """Makes deserved amounts the weights of queues that together deserve more than there is."""
        for above in self.root:
            for resource in self.terms.entitled:
                most = above.deserved.get(resource, self.total.get(resource, 0))
                deserve = [each for each in above.children if each.deserved.get(resource)]
                every = sum(each.deserved[resource] for each in deserve)
                weight = sum(each.seen.weight for each in deserve)
                for each in deserve:
                    part = each.deserved[resource] / every
                    each.weigh(resource, weight * part if every > most else None)

    def is_shared(self, resource: str) -> bool:
        """Returns whether the resource is shared out by itself. Devices are shared out as GPU equivalents, unless a
        Queue deserves shares or slices, or has them guaranteed, by name."""
        return not self.currency.units(resource) or resource in self.terms.entitled

    def is_claimed(self, resource: str) -> bool:
        """Returns whether queues take the resource from each other: GPUs, what a queue has a quota for, and what
        --share-by-weight names."""
        return self.is_shared(resource) and (
            resource == GPU_EQUIVALENTS
            or resource in self.terms.limited
            or not self._by_weight.isdisjoint((ALL_RESOURCES, resource))
        )

    def _build_tree(self) -> None:
        """Builds the tree and its sums from the Queue objects, and keeps the usage history."""
        self._changed()
        self.share_tables = {}
        self.in_flight.outdated = True
        self._names = sorted(self._seen)
        before = self.by_name
        root = self.root = self._described(ROOT)
        if root.seen.error:  # else all queues would be invalid
            root = self.root = Queue.without_object(ROOT)
        found = {name: self._described(name) for name in sorted({*self._seen, DEFAULT} - {ROOT})}
        self.by_name = {ROOT: root, **found}
        self._keep_history(before)
        for queue in found.values():
            queue.error = self._invalid_because(queue.seen)
            if not queue.error:
                queue.parent = self.by_name[queue.seen.parent or ROOT]
                queue.parent.children.append(queue)
        for queue in self.by_name.values():
            self._disable_below(queue)
        self._shared = frozenset(
            name
            for name, queue in found.items()
            if queue.seen.by_namespace and not (queue.error or queue.children)
        )
        self.terms = TermsInUse.of(root, self._seen.values())
        self._weigh_deserved()
        for queue in root:
            queue.path = (queue, *(queue.parent.path if queue.parent else ()))
        for name, old in before.items():
            if old.gangs:
                queue = self.by_name.get(name) or self._add_unnamed(name)
                if queue.is_part:
                    queue.keep_history(old.history(), self.now)
                queue.adopt_gangs(old)
        for queue in list(self.by_name.values()):
            for gang in queue.gangs.values():
                if gang.account is not None:
                    self._charge(queue, gang, gang.account, 1)

    def _keep_history(self, before: Mapping[str, Queue]) -> None:
        for replaced in before.values():  # all first: siblings are compared
            self.record_usage(replaced)
        for name, queue in self.by_name.items():
            if (old := before.get(name)) is not None:
                queue.keep_history(old.history(), self.now)
            self._restore_past(queue)

    def _described(self, name: str) -> Queue:
        if (seen := self._seen.get(name)) is None:
            return Queue.without_object(name)
        return Queue(seen, self._terms[name])

    def _invalid_because(self, seen: facts.QueueSeen) -> str:
        if seen.error:
            return f"queue {seen.name} is invalid: {seen.error}"
        where = f"queue {seen.name} is invalid: spec.parent"
        path = [seen.name, *self.ancestors(seen.name)]
        last = self._seen.get(path[-1])
        if last is not None and last.parent == seen.name:
            if last is seen:
                return f"{where}: the queue is its own parent"
            return f"{where}: {', '.join(sorted(path))} form a cycle"
        if seen.parent and seen.parent not in self.by_name:
            return f"{where}: {self._absent(seen.parent)}{self._near(seen.parent)}"
        if last is not None and len(path) > QUEUE_DEPTH:
            return f"{where}: it is more than {QUEUE_DEPTH} levels below {ROOT}"
        return ""

    def ancestors(self, name: str) -> list[str]:
        """The queues above it as the objects name them, the nearest first, without the root; also of an invalid queue.
        It ends with a queue that has no object, and before a name comes twice."""
        found = [name]
        while (seen := self._seen.get(found[-1])) is not None and seen.parent not in ("", ROOT):
            if len(found) > QUEUE_DEPTH or seen.parent in found:
                break
            found.append(seen.parent)
        return found[1:]

    def _disable_below(self, queue: Queue) -> None:
        """Takes the descendants of an invalid queue out of the tree, with the same reason."""
        if not queue.error:
            return
        children, queue.children = queue.children, []
        for child in children:
            child.parent = None
            child.error = child.error or f"queue {child.name}: its parent {queue.error}"
            self._disable_below(child)


def _put(table: dict[str, Value], key: str, value: Value | None) -> bool:
    """Sets the value of the key; None: the key has none. Returns whether that changes the table."""
    if table.get(key) == value:
        return False
    if value is None:
        del table[key]
    else:
        table[key] = value
    return True


def _demand(gang: Gang) -> Sums:
    """The requests of the pods that only lack capacity."""
    counts = gang.counts
    if counts.gated or (gang.object is not None and gang.object.error):
        return {}
    return sums_of(pod for pod in counts.waiting if not pod.spec.unsupported)


def sums_of(pods: Iterable[Pod]) -> Sums:
    """The requests of all pods. Pods share PodSpecs, so equal pods are multiplied, not added."""
    counts: dict[facts.PodSpec, int] = {}
    for pod in pods:
        counts[pod.spec] = counts.get(pod.spec, 0) + 1
    return requested(counts.items())
