"""Counts the numbers of queues in a pending gang's reason again, from the gangs that run in them."""

import re
from collections import Counter
from fractions import Fraction

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.queues import entitlement
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import GPU
from tests.simulation import protection_reasons, recount
from tests.simulation.reason_counts import StateCounts
from tests.simulation.reason_patterns import NO_VICTIMS, Found


def _kind(whose: str | None) -> str:
    return "" if not whose else "namespace" if re.fullmatch(r"namespace \S+", whose) else "user"


def _user(gang: Gang) -> tuple[str, str]:
    """Of its first pod; without one its namespace counts as a user."""
    pods = sorted(
        (pod.seen for pod in gang.members.values()), key=lambda pod: (pod.created, pod.order)
    )
    user = pods[0].user if pods else ""
    return ("", user) if user else (gang.namespace, "")


class QueueReasons:
    scheduler: Scheduler
    counts: StateCounts

    def capability(self, gang: Gang, found: Found, reason: str) -> str:
        queue, name = (
            self.scheduler.queues.by_name[found["queue"]],
            recount.resource(found["resource"]),
        )
        seen, lent = queue.seen, found["noun"] != "capability"
        most = dict(seen.capability).get(name)
        if name in dict(seen.borrowing_limit):
            own = dict(seen.deserved).get(name, 0) + dict(seen.borrowing_limit)[name]
            assert lent == (most is None or own < most), "which limit"
            most = own if lent else most
        assert most is not None, "it has no such limit"
        assert recount.said(name, most) == found["most"], "the limit"
        if "used" in found.re.groupindex:
            used = self.counts.used(queue, name)
            assert recount.said(name, used) == found["used"], f"the queue uses {used}"
        return found.string[found.end() :]

    def running_gangs(self, gang: Gang, found: Found, reason: str) -> str:
        queue = self.scheduler.queues.by_name[found["queue"]]
        running = [
            each for each in self._of_tenant(gang, queue, found["whose"]) if self._runs(each)
        ]
        mosts = {
            "": queue.seen.running_gangs,
            "namespace": queue.seen.namespace_gangs,
            "user": queue.seen.user_gangs,
        }
        most = mosts[_kind(found["whose"])]
        assert (int(found["running"]), int(found["most"])) == (len(running), most), f"{running} run"
        assert bool(found["never"]) == (not most)
        assert not self._runs(gang)
        self._somebody_claims(found)
        return found.string[found.end() :]

    def tenant_amounts(self, gang: Gang, found: Found, reason: str) -> str:
        queue = self.scheduler.queues.by_name[found["queue"]]
        name, seen = recount.resource(found["resource"]), queue.seen
        of_users = _kind(found["whose"]) == "user"
        most = dict(seen.user_amounts if of_users else seen.namespace_amounts)[name]
        assert recount.said(name, most) == found["most"], "the limit"
        used: int | Fraction = sum(
            self.counts.request(pod.spec, name)
            for other in self._of_tenant(gang, queue, found["whose"])
            for pod in other.members.values()
            if pod.node and pod.alive
        )
        need = self._need(gang, name)
        assert recount.said(name, need) == found["need"], f"{need} are needed"
        assert bool(found["never"]) == (need > most) == (found["used"] is None)
        if not found["never"]:
            assert recount.said(name, used) == found["used"], f"{used} are used"
            assert used + need > most or found["claimed"]
        self._somebody_claims(found)
        return found.string[found.end() :]

    def _somebody_claims(self, found: Found) -> None:
        assert not found["claimed"] or self.scheduler.queues.claims, "nobody claims"

    def _requested(self, gang: Gang, name: str) -> int | Fraction:
        """By the pods that were refused."""
        refused = self.scheduler.refused[gang.key].request.groups
        return sum(self.counts.request(spec, name) * count for spec, count in refused)

    def _need(self, gang: Gang, name: str) -> int | Fraction:
        """The same, and before the gang has started at least what is left of its minResources."""
        if gang.started or gang.object is None or not gang.object.min_resources:
            return self._requested(gang, name)
        need, taken = Counter[str](), Counter[str]()
        for spec, count in self.scheduler.refused[gang.key].request.groups:
            need.update({each: amount * count for each, amount in spec.requests})
        for pod in gang.members.values():
            taken.update(dict(pod.spec.requests) if pod.node and pod.alive else {})
        for each, least in gang.object.min_resources:
            need[each] = max(need[each], least - taken[each])
        return self.counts.request(PodSpec(tuple(need.items())), name)

    def _of_tenant(self, gang: Gang, queue: Queue, whose: str | None) -> list[Gang]:
        """The gangs of the queue and of those below it, of the gang's namespace or user."""
        inside = {each.name for each in queue}
        return [
            other
            for other in self.scheduler.state.gangs.values()
            if other.account is not None
            and other.account.queue in inside
            and (_kind(whose) != "namespace" or other.namespace == gang.namespace)
            and (_kind(whose) != "user" or _user(other) == _user(gang))
        ]

    def _runs(self, gang: Gang) -> bool:
        return any(pod.node and pod.alive for pod in gang.members.values())

    def deserved_by_the_unpreemptable(self, gang: Gang, found: Found, reason: str) -> str:
        queue = self.scheduler.queues.by_name[found["queue"]]
        name = recount.resource(found["resource"])
        most = dict(queue.seen.deserved)[name]
        inside = {each.name for each in queue}
        used: int | Fraction = 0
        for other in self.scheduler.state.gangs.values():
            by_pods = [
                pod.seen.preemptable for pod in other.members.values() if pod.seen.deleting is False
            ]
            by_group = other.object is not None and other.object.preemptable is False
            if other.queue in inside and (by_group or False in by_pods):
                held = [pod for pod in other.members.values() if pod.node and pod.alive]
                used += sum(self.counts.request(pod.spec, name) for pod in held)
        need = self._need(gang, name)
        assert recount.said(name, most) == found["most"], "the deserved amount"
        assert recount.said(name, used) == found["used"], f"they use {used}"
        assert recount.said(name, need) == found["need"], f"{need} are needed"
        assert bool(found["never"]) == (need > most), "never"
        assert used + need > most or found["claimed"]
        self._somebody_claims(found)
        return found.string[found.end() :]

    def guaranteed(self, gang: Gang, found: Found, reason: str) -> str:
        queues, name = self.scheduler.queues, recount.resource(found["resource"])
        whole = Fraction(queues.total.get(GPU_EQUIVALENTS, 0), GPU_UNITS)
        total = whole if name == GPU else queues.total.get(name, 0)
        free = total - self.counts.used(queues.root, name)
        assert recount.said(name, free) == found["free"], f"{free} are free"
        kept: int | Fraction = 0
        for other in found["queues"].split(", "):
            kept += self.counts.unused_guarantee(queues.by_name[other], name)
        if not self.scheduler.queues.claims:
            assert recount.said(name, min(kept, free)) == found["kept"], f"{kept} are guaranteed"
        self._somebody_claims(found)
        return self._usable_part(gang, found.string[found.end() :])

    def _usable_part(self, gang: Gang, rest: str) -> str:
        """How many GPUs are free on nodes that the pods may use, where some are free on others."""
        specs = [spec for spec, _ in self.scheduler.refused[gang.key].request.groups]
        of_gpus = [spec for spec in specs if spec.request(GPU)]
        # A node whose report was lost to a bug is closed too, but counts in what is free.
        opened = [
            node
            for node in self.counts.nodes
            if node.seen is not None and node.seen.ready and not node.seen.unschedulable
        ]
        usable = [
            node for node in self.counts.nodes if any(not recount.refusal(s, node) for s in of_gpus)
        ]
        here = sum(self.counts.free(node, GPU) for node in usable)
        some_are_not = bool(of_gpus) and here < sum(self.counts.free(node, GPU) for node in opened)
        found = re.match(r"the nodes that its pods may use have (\d+) GPUs? free(?:$|; )", rest)
        assert bool(found) == some_are_not, f"they may use {here} that are free"
        if found is None:
            return rest
        assert int(found[1]) == here, f"{here} are free"
        return rest[found.end() :]

    def no_victims(self, gang: Gang, clause: str) -> None:
        """Usage is counted again."""
        queues = self.scheduler.queues
        assert gang.key not in queues.claims, "it has victims"
        if not queues.enabled:
            assert re.fullmatch(protection_reasons.WITHOUT_QUEUES, clause), (
                f"unknown words: {clause}"
            )
            protection_reasons.assert_counts_true(self.scheduler, gang, clause, ())
            return
        assert re.fullmatch(NO_VICTIMS, clause), f"unknown words: {clause}"
        for name, amount, words, share in re.findall(
            r"queue (\S+) uses (\S+) (\S+?), above its (?:fair share of|deserved) ([\d.]+)", clause
        ):
            resource = recount.resource(words)
            used = recount.said(resource, self.counts.used(queues.by_name[name], resource))
            assert used == amount, f"queue {name} uses {used}"
            assert share in self._shares(name, resource), "its share"
        for name, amount, words, share in re.findall(
            r"queue (\S+)(?: \(above \S+\))? would use (\S+) (\S+?), and its .*? is ([\d.]+)",
            clause,
        ):
            resource = recount.resource(words)
            queue, need = queues.by_name[name], self._requested(gang, resource)
            would_use = {
                recount.said(resource, self.counts.used(queue, resource) - gone + need)
                for gone in self._terminating(queue, resource)
            }
            is_true = amount in would_use or queues.claims
            assert is_true, f"queue {name} would use one of {would_use}"
            assert share in self._shares(name, resource), "its share"
        for priority in re.findall(r"priority below (-?\d+)", clause):
            assert int(priority) == gang.priority, "the priority"

        self._protected(gang, clause)

    def _terminating(self, queue: Queue, name: str) -> set[int | Fraction]:
        """What the queue's pods use that terminate, on nodes that are ready."""
        ready = {
            node.name for node in self.counts.nodes if node.seen is not None and node.seen.ready
        }
        inside = {each.name for each in queue}
        here = [
            (gang, pod)
            for gang in self.scheduler.state.gangs.values()
            if gang.account is not None and gang.account.queue in inside
            for pod in gang.members.values()
            if pod.node in ready and pod.alive
        ]
        return {
            sum(self.counts.request(pod.spec, name) for gang, pod in here if goes(gang, pod))
            for goes in (protection_reasons.leaves, protection_reasons.left_before)
        }

    def _protected(self, gang: Gang, clause: str) -> None:
        """How many pods rules protect in the queues that could give, and in the gang's own."""
        if above := re.search(
            r"((?:queue [^:]*?, )+)but [^:]*? would not let it start(.*)", clause
        ):
            rest = above[2].partition(", and evicting all gangs")[0]
            givers = re.findall(r"queue (\S+) uses", above[1])
            if "..." not in above[1]:
                protection_reasons.assert_counts_true(self.scheduler, gang, rest, givers)
        if own := re.search(
            r"of its queue with priority below \d+ would not free enough(.*)", clause
        ):
            queues = [gang.queue]
            protection_reasons.assert_counts_true(self.scheduler, gang, own[1], queues)

    def _shares(self, name: str, resource: str) -> set[str]:
        """The queue's fair share, and what it deserves or is guaranteed. These have oracles of their own."""
        queues, counted = self.scheduler.queues, GPU_EQUIVALENTS if resource == GPU else resource
        own = entitlement.own_amount(queues, queues.by_name[name], counted)
        amounts = (entitlement.fair_shares(queues, counted)[name], own)
        return {wording.amount(counted, amount) for amount in amounts}

    def min_resources(self, gang: Gang, found: Found, reason: str) -> str:
        name = recount.resource(found["resource"])
        opened = [
            each
            for each in self.counts.nodes
            if (seen := each.seen) is not None and seen.ready and not seen.unschedulable
        ]
        free = sum(self.counts.free(node, name) for node in opened)
        assert wording.amount(name, free) == found["free"], f"the cluster has {free} free"
        return found.string[found.end() :]
