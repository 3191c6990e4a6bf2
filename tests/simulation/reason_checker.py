"""Counts every number of a pending gang's reason again, from nodes, pods and queues, with plain loops. A reason of a
form that is not known here fails, so that a new sentence gets a count of its own."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler import refusal_reasons
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.queues import entitlement
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from protos.names import GPU, MIG
from tests.simulation import recount
from tests.simulation.reason_counts import StateCounts
from tests.simulation.reason_patterns import (
    AFTER,
    CANDIDATE,
    CHECKS,
    FREE_GPUS,
    NO_SWITCHES,
    NOBODY,
    PART_OF_ONE,
    PARTS,
    PLAIN,
    TOGETHER,
    Found,
)

RESTARTING = re.compile(
    r"; fits with (?:node|\d+ nodes:) (.+), but the agent or the kubelet is restarting there$"
)
Check = Callable[[Gang, Found, str], str]  # returns what of the sentence follows


def assert_reasons_true(scheduler: Scheduler) -> None:
    """Checks the reason of every pending gang, but for those whose turn to be counted again comes in the next cycle."""
    checker, later = ReasonChecker(scheduler), _counted_later(scheduler)
    for gang in scheduler.state.pending.waiting.values():
        if gang.attempt.reason and gang.key not in later:
            try:
                checker.check(gang, gang.attempt.reason)
            except AssertionError as error:
                raise AssertionError(f"{gang.name}: {gang.attempt.reason}\n{error}") from None


def _counted_later(scheduler: Scheduler) -> set[GangKey]:
    """The refusals that are out of date because one cycle counts only so many again. Raises AssertionError if it has
    not counted so many."""
    stamp = refusal_reasons.capacity_stamp(scheduler)
    later = {key for key, refusal in scheduler.refused.items() if refusal.stamp != stamp}
    counted = [each.reason for key, each in scheduler.refused.items() if key not in later]
    enough = len(counted) >= min(refusal_reasons.RECOMPUTED_MOST, len(scheduler.refused))
    assert enough, f"{len(later)} reasons are out of date, and only {len(counted)} are not"
    return later


class ReasonChecker:
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.counts = StateCounts(scheduler)

    def check(self, gang: Gang, reason: str) -> None:
        if "search limit reached" in reason or "group of subgroups" in reason:
            return  # layers of subgroups are searched, not counted
        if re.search(r"groups? of \d+ subgroup", reason):
            return  # the same
        if re.match(r"(\S.* is )?set aside after a failure of the scheduler", reason):
            return  # nothing was counted
        if reason in {gang.counts.blocked} - {""}:
            return  # words of whoever refused the binding for good
        if restarting := RESTARTING.search(reason):
            names = set(restarting[1].split(" and ")[0].split(", "))
            assert names <= self.scheduler.state.node_sets.not_offered
            return
        rest = reason
        for pattern, check in CHECKS:
            if match := re.match(pattern, rest):
                count: Check = getattr(self, check)
                rest = count(gang, match, reason)
                break
        rest, _, nobody = rest.partition("nobody gives way: ")
        if nobody:
            self.nobody_gives_way(gang, nobody)
        while rest:
            known = re.match("(?:" + "|".join(PLAIN) + r")(?:; |$)", rest)
            assert known, f"unknown words: {rest}"
            rest = rest[known.end() :]

    # --- gangs that are not complete ----------------------------------------------------------

    def minimum(self, gang: Gang, found: Found, reason: str) -> str:
        assert (int(found[1]), int(found[2])) == (gang.minimum, len(gang.members))
        return found.string[found.end() :]

    def more_pods(self, gang: Gang, found: Found, reason: str) -> str:
        assert (int(found[1]), int(found[2])) == (gang.missing(), len(recount.waiting(gang)))
        return found.string[found.end() :]

    def gated(self, gang: Gang, found: Found, reason: str) -> str:
        gated = sum(pod.seen.gated and not pod.node for pod in gang.members.values())
        assert (int(found[1]), int(found[2])) == (gated, len(gang.members))
        return found.string[found.end() :]

    def whole_subgroups(self, gang: Gang, found: Found, reason: str) -> str:
        """So many subgroups that the pods, which wait or run, could make whole."""
        (policy,) = [each for each in gang.subgroups if each.name == found["policy"]]
        whole = sum(
            len(pods) >= policy.size
            for (name, *_), pods in recount.subgroups(gang).items()
            if name == policy.name
        )
        said = tuple(int(found[each]) for each in ("least", "size", "whole"))
        assert said == (policy.least, policy.size, whole), f"{whole} are whole"
        return found.string[found.end() :]

    def pods_of_subgroup(self, gang: Gang, found: Found, reason: str) -> str:
        if found["more"]:
            assert int(found["more"]) == gang.missing()
        if found["pending"]:
            assert int(found["pending"]) == len(recount.waiting(gang))
            return found.string[found.end() :]
        sizes = {policy.name: policy.size for policy in gang.subgroups}
        exist = {
            "-".join(name): (len(p), sizes[name[0]]) for name, p in recount.subgroups(gang).items()
        }
        assert exist[found["name"]] == (int(found["exist"]), int(found["size"])), f"{exist}"
        return found.string[found.end() :]

    # --- subgroups ------------------------------------------------------------------------------

    def equal_subgroups(self, gang: Gang, found: Found, reason: str) -> str:
        """So many of equal subgroups fit, each in one domain, all in one domain."""
        sizes = {policy.size for policy in gang.subgroups}
        size, copies = int(found["size"]), int(found["copies"])
        some_run = any(pod.node for pod in gang.members.values())  # then the rest of one is meant
        assert size in sizes or (some_run and 0 < size < max(sizes)), f"subgroups of {sizes}"
        if not some_run:
            (policy,) = gang.subgroups  # equal ones
            least = max(policy.least, -(-gang.missing() // size))
            assert copies == least, f"{least} are needed"
        assert int(found["units"]) == copies
        names = re.search(r"; excluding capacity reserved for ([^;]*)", reason)
        if not (names and " more" in names[1]):
            held = self.counts.reservations(names[1].split(", ") if names else [])
            specs = {pod.spec for pod in recount.waiting(gang)}
            counts = [self._most_subgroups(spec, found, held) for spec in specs]
            said = int(found["fits"])
            sure = [exact and not some_run for _, exact in counts]
            assert any(
                said == most if exact else said <= most
                for (most, _), exact in zip(counts, sure, strict=True)
            ), counts
        return found.string[found.end() :]

    def _most_subgroups(
        self, spec: PodSpec, found: Found, held: Sequence[Reservation]
    ) -> tuple[int, bool]:
        """In the domain that takes most; and whether that is exact, for the scheduler may count fewer."""
        level, whole, size = found["level"] or "", found["all"] or "", int(found["size"])
        inside = level in PARTS or whole in PARTS
        pods: Counter[tuple[str, str]] = Counter()
        for node in self.counts.nodes:
            outer, inner = self.counts.place(node, whole), self.counts.place(node, level)
            if not recount.refusal(spec, node) and outer is not None and inner is not None:
                pods[outer, inner] += self.counts.capacity(spec, node, held)
        units: Counter[str] = Counter()
        for (wide, _), count in pods.items():
            units[wide] += count // size
        counted = spec.rules is None and not spec.matched and spec.volumes is None
        plain = not (spec.share_containers or spec.rdma_containers)
        return max(units.values(), default=0), counted and plain and not inside and bool(level)

    def unlike_subgroups(self, gang: Gang, found: Found, reason: str) -> str:
        """Each fits by itself. Those that are needed are among those that wait."""
        named = sum(map(int, re.findall(r"(\d+) pods?", found["pods"])))
        waiting = recount.waiting(gang)
        there = [
            pods for pods in recount.subgroups(gang).values() if any(pod in waiting for pod in pods)
        ]
        assert 1 <= int(found["groups"]) <= len(there), f"{len(there)} wait"
        assert gang.missing() <= named <= len(waiting), f"{gang.missing()} are missing"
        return found.string[found.end() :]

    # --- queues -----------------------------------------------------------------------------------

    def capability(self, gang: Gang, found: Found, reason: str) -> str:
        queue, name = (
            self.scheduler.queues.by_name[found["queue"]],
            recount.resource(found["resource"]),
        )
        most = dict(queue.seen.capability)[name]
        assert recount.said(name, most) == found["most"], "the capability"
        if "used" in found.re.groupindex:
            used = self.counts.used(queue, name)
            assert recount.said(name, used) == found["used"], f"the queue uses {used}"
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
        assert not found["claimed"] or self.scheduler.queues.claims, "nobody claims"
        return found.string[found.end() :]

    def nobody_gives_way(self, gang: Gang, clause: str) -> None:
        """Usage is counted again."""
        queues = self.scheduler.queues
        assert gang.key not in queues.claims, "somebody does"
        assert re.fullmatch(NOBODY, clause), f"unknown words: {clause}"
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
            refused = self.scheduler.refused[gang.key].request.groups
            need = sum(self.counts.request(spec, resource) * count for spec, count in refused)
            used = recount.said(resource, self.counts.used(queues.by_name[name], resource) + need)
            assert used == amount or queues.claims, f"queue {name} would use {used}"
            assert share in self._shares(name, resource), "its share"
        for priority in re.findall(r"less urgent than priority (-?\d+)", clause):
            assert int(priority) == gang.priority, "the priority"

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

    # --- placement ----------------------------------------------------------------------------------

    def placement(self, gang: Gang, found: Found, reason: str) -> str:
        waiting = recount.waiting(gang)
        named = sum(map(int, re.findall(r"(\d+) pods?", found["pods"])))
        missing = gang.missing()
        if found["alone"]:
            most = max(policy.size for policy in gang.subgroups)
            assert 1 <= named <= most, f"a subgroup has {most} pods"
            missing = 0
        if missing and not gang.subgroups:  # subgroups are placed whole
            assert named == missing, f"{missing} are missing"
        assert missing <= named <= len(waiting), f"{missing} are missing"
        level, rest, problems = found["level"] or "", found["rest"], []
        if rest.startswith("can never start: "):
            match = re.match(rf"(.*?)(?:$|; (?={AFTER}))", rest)
        else:
            match = CANDIDATE.match(rest)
        if together := re.match(TOGETHER, rest):
            assert int(together[1]) < int(together[2]) == named
            return rest[together.end() :]
        if match is None:
            return rest
        names = re.search(r"; excluding capacity reserved for ([^;]*)", reason)
        names = names or re.search(r" of them reserved for ([^;)]*)", reason)  # the same gangs
        if names and " more" in names[1]:
            return rest[match.end() :]  # not all of them are known
        counts = {int(number) for number in re.findall(r"(\d+) pods?", found["pods"])}
        held = self.counts.reservations(names[1].split(", ") if names else [])
        for spec in dict.fromkeys(pod.spec for pod in waiting):  # the reason is about one of them
            try:
                if match.re is CANDIDATE:
                    self._candidate(gang, spec, level, (match, counts), held)
                else:
                    self._never(spec, level, match[1])
            except AssertionError as error:
                problems.append(str(error).splitlines()[0] if str(error) else repr(error))
            else:
                return rest[match.end() :]
        raise AssertionError("; ".join(problems))

    def _candidate(
        self,
        gang: Gang,
        spec: PodSpec,
        level: str,
        said_of: tuple[Found, set[int]],
        held: Sequence[Reservation],
    ) -> None:
        match, counts = said_of
        where = self._named_nodes(gang, match, level)
        usable = [node for node in where if not recount.refusal(spec, node)]
        fits = sum(self.counts.capacity(spec, node, held) for node in usable)
        said = int(match["fits"])
        assert int(match["count"]) in counts, f"of {counts}"
        counted = spec.rules is None and not spec.matched and spec.volumes is None
        whole = counted and not spec.share_containers and not spec.rdma_containers
        if level in PARTS:
            whole = False
        assert fits == said if whole else fits >= said, f"{fits} fit"
        refused: Counter[str] = Counter()
        for each in (match["details"] or "").split("; "):
            if refusal := re.fullmatch(r"(\d+) nodes?: (.*)", each):
                refused[refusal[2]] += int(refusal[1])
            elif each:
                self._detail(spec, usable, held, each, exact=counted)
        expected = Counter(
            why for node in self.counts.nodes if (why := recount.refusal(spec, node))
        )
        if level == "PCIe switch" and spec.request(GPU):
            expected += Counter(
                NO_SWITCHES
                for node in self.counts.nodes
                if not recount.refusal(spec, node) and recount.lacks_switches(node)
            )
        for why, count in expected.items():
            assert refused[why] == count, f"{count} nodes: {why}"
        assert refused == expected or not counted, f"refused by nothing: {refused - expected}"
        if match["never"]:
            self._never(spec, level, match["never"])

    def _named_nodes(self, gang: Gang, match: Found, level: str) -> list[ClusterNode]:
        """The nodes of the candidate that the sentence names."""
        name = match["best"] or (match["at"] or "").rpartition(" ")[2]
        if not name:
            return self.counts.nodes
        if level in ("", "node", *PARTS):
            return [node for node in self.counts.nodes if node.name == name]
        return [node for node in self.counts.nodes if name in self.counts.domain(node, level)]

    def _detail(
        self,
        spec: PodSpec,
        usable: Sequence[ClusterNode],
        held: Sequence[Reservation],
        detail: str,
        *,
        exact: bool,
    ) -> None:
        if match := FREE_GPUS.fullmatch(detail):
            free = sum(self.counts.free(node, GPU) for node in usable)
            total = sum(node.allocatable().get(GPU, 0) for node in usable)
            kept = free - sum(self.counts.free(node, GPU, held) for node in usable)
            said = tuple(int(number or 0) for number in match.group(1, 2, 3, 4))
            if exact:
                assert said == (free, total, len(usable), kept), (free, total, len(usable), kept)
            else:
                assert all(a <= b for a, b in zip(said, (free, total, len(usable)), strict=False))
            if exact and kept and " more" not in match[5]:
                left = [
                    sum(self.counts.free(node, GPU, held[:count]) for node in usable)
                    for count in range(len(held) + 1)
                ]
                owners = {  # what two reserve is counted for the first
                    each.gang.qualified_name
                    for each, (before, after) in zip(held, pairwise(left), strict=True)
                    if after < before
                }
                assert set(match[5].split(", ")) == owners, f"reserved for {owners}"
        elif match := re.fullmatch(r"short of (.*): enough for (\d+)", detail):
            name = recount.resource(match[1])
            if name == "volumes" or "NIC" in name or not exact:
                return
            enough = sum(
                max(self.counts.free(n, name, held), 0) // spec.request(name) for n in usable
            )
            assert enough == int(match[2]), f"enough {name} for {enough}"
        elif match := re.fullmatch(r"(\d+) of (\d+) (\S+) slices free on (\d+) nodes?", detail):
            free = sum(max(self.counts.free(node, MIG + match[3], held), 0) for node in usable)
            total = sum(node.allocatable().get(MIG + match[3], 0) for node in usable)
            numbers = tuple(int(number) for number in match.group(1, 2, 4))
            assert numbers == (free, total, len(usable)) or not exact, (free, total, len(usable))
        else:
            words = r"there are no .*|no node there offers.*|\d+ hundredths of GPUs.*"
            assert re.fullmatch(words, detail), f"unknown words: {detail}"

    def _never(self, spec: PodSpec, level: str, text: str) -> None:
        text, _, refused = text.removeprefix("can never start: ").partition(" (")
        if refused:
            counts = Counter(
                why for node in self.counts.nodes if (why := recount.lasting(spec, node))
            )
            said = [part.split(" ", 2)[::2] for part in refused.rstrip(")").split("; ")]
            assert {why: int(count) for count, why in said} == counts, f"{counts}"
        usable = [node for node in self.counts.nodes if not recount.lasting(spec, node)]
        if match := PART_OF_ONE.fullmatch(text):
            assert match[2] == level
            assert not any(map(recount.lacks_switches, usable)) or level != "PCIe switch"
            most = max(part for node in usable for part in recount.parts(node, level))
            assert int(match[3]) == most < spec.request(GPU) == int(match[1]), f"at most {most}"
        elif match := re.match(
            r"no node(?: that they may use)? has (\S+) (\S+), the most is (\S+)", text
        ):
            name = recount.resource(match[2])
            most = max([recount.most(node, name) for node in usable], default=0)
            asked = spec.request(name)
            assert most < asked == recount.amount(name, match[1]), f"the most is {most}"
            assert wording.amount(name, most) == match[3], f"the most is {most}"
        elif text.startswith("no node may run such a pod"):
            assert not usable
        elif match := re.fullmatch(r"even if empty, .* fits? (\d+)", text):
            most = sum(recount.when_empty(spec, node) for node in usable)
            assert most == int(match[1]), f"{most} fit"
        elif match := re.fullmatch(r"even if empty, no (.*) fits more than (\d+)", text):
            if level in PARTS:
                return
            sums: Counter[str] = Counter()
            for node in usable:
                for name in (node.name,) if level == "node" else self.counts.domain(node, level):
                    sums[name] += recount.when_empty(spec, node)
            most = max(sums.values())
            assert most == int(match[2]), f"the largest fits {most}"
        elif match := re.fullmatch(r"they need (\d+) GPUs, .* have (\d+)", text):
            assert int(match[1]) > int(match[2])
        else:
            words = r"no node (that they may use )?has (all that|label).*|topology level.*"
            assert re.match(words, text), f"unknown words: {text}"
