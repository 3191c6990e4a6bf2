"""Counts every number of a pending gang's reason again, from nodes, pods and queues, with plain loops. A reason of a
form that is not known here fails, so that a new sentence gets a count of its own."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler import refusal_reasons
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from protos.names import GPU, MIG
from protos.topology import indices_of
from tests.simulation import recount

PLAIN = (  # no numbers
    r"each pod type fits on its own, but not all together",
    r"each subgroup fits on its own, but not all together",
    r"search limit reached; a placement may exist",
    r"the cluster has no nodes",
    r"can never start: topology level \S+ is not one of .*",
    r"could not bind pod .*",
    r"(not decided within|the search for victims reached) the work limit of one cycle; it is tried again",
    r"fits now; its pods are bound in the next cycle",
    r"reserved: .*",
    r"expected in .*",
    r"preempted by [^;]*",
    r"preemption blocked by [^;]*",
    r"with lockstep.dev/runs-for it may use that until then",
    r"excluding (capacity|volumes) reserved for [^;]*",
    r"queue \S+( \(above \S+\))? is (closed|invalid: .*)",
    r"queue \S+ does not exist(; did you mean \S+\?)?",
    r"queue \S+: its parent .*",
    r"queue \S+ is not a leaf; .*",
    r"queue \S+ is first in, first out; .* is ahead of it",
    r"namespace \S+ may not use queue .*",
    r"(namespace \S+ in )?queue \S+ (\(above \S+\) )?(runs|uses|may use) .*",
    r"PodGroup \S+ does not exist in namespace \S+",
    r"spec\.priorityClassName: .*",
    r"claim \S+ .*",
    r"is bound to volume .*",
    r"task \S+ needs .*",
    r"reduce the request or raise the capability",
)

Found = re.Match[str]
PODS = r"needs (?P<pods>\d+ pods?(?: x .+?)?)(?: in one (?P<level>[^;]+?))?; (?=(?P<rest>.*))"
AFTER = r"(?:reserved|excluding|with lockstep|preemption blocked|expected)"
CANDIDATE = re.compile(
    r"(?:the best node|the cluster|best candidate (?:node )?(?P<best>\S+)|(?P<at>.+?), where the rest"
    r" of the gang is,) fits (?P<fits>\d+) of (?P<count>\d+)(?: \((?P<details>.*?)\))?"
    r"(?:; (?P<never>can never start: .*?))?(?:$|; (?=" + AFTER + "))"
)
TOGETHER = r"(\d+) of (\d+) fit together under [^;(]*rules(?: \(.*?\))?(?:$|; )"
FREE_GPUS = re.compile(
    r"(\d+) of (\d+) GPUs free on (\d+) nodes?(?:, (\d+) of them reserved for (.*))?"
)


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
        self.nodes = [node for node in scheduler.state.nodes.values() if node.seen is not None]

    def check(self, gang: Gang, reason: str) -> None:
        if "search limit reached" in reason or re.search(
            r"(needs \d+|in \d+|one) subgroup", reason
        ):
            return  # subgroups are searched, not counted
        if reason.startswith("set aside after a failure of the scheduler"):
            return  # nothing was counted
        if reason in {gang.counts.blocked} - {""}:
            return  # words of whoever refused the binding for good
        rest = reason
        for pattern, check in CHECKS:
            if match := re.match(pattern, rest):
                rest = check(self, gang, match, reason)
                break
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

    # --- queues -----------------------------------------------------------------------------------

    def capability(self, gang: Gang, found: Found, reason: str) -> str:
        queue, name = (
            self.scheduler.queues.by_name[found["queue"]],
            recount.resource(found["resource"]),
        )
        most = dict(queue.seen.capability)[name]
        assert recount.said(name, most) == found["most"], "the capability"
        if "used" in found.re.groupindex:
            used = self._used(queue, name)
            assert recount.said(name, used) == found["used"], f"the queue uses {used}"
        return found.string[found.end() :]

    def guaranteed(self, gang: Gang, found: Found, reason: str) -> str:
        queues, name = self.scheduler.queues, recount.resource(found["resource"])
        whole = Fraction(queues.total.get(GPU_EQUIVALENTS, 0), GPU_UNITS)
        total = whole if name == GPU else queues.total.get(name, 0)
        free = total - self._used(queues.root, name)
        assert recount.said(name, free) == found["free"], f"{free} are free"
        kept: int | Fraction = 0
        for other in found["queues"].split(", "):
            kept += self._unused_guarantee(queues.by_name[other], name)
        assert recount.said(name, min(kept, free)) == found["kept"], f"{kept} are guaranteed"
        return found.string[found.end() :]

    def min_resources(self, gang: Gang, found: Found, reason: str) -> str:
        name = recount.resource(found["resource"])
        opened = [
            each
            for each in self.nodes
            if (seen := each.seen) is not None and seen.ready and not seen.unschedulable
        ]
        free = sum(self._free(node, name) for node in opened)
        assert wording.amount(name, free) == found["free"], f"the cluster has {free} free"
        return found.string[found.end() :]

    def _unused_guarantee(self, queue: Queue, name: str) -> int | Fraction:
        own = dict(queue.seen.guarantee).get(name, 0) - self._used(queue, name)
        return max(0, own, sum(self._unused_guarantee(child, name) for child in queue.children))

    def _used(self, queue: Queue, name: str) -> int | Fraction:
        """By the gangs of the queue and of those below it. GPUs include shares and slices."""
        inside = {each.name for each in queue}
        return sum(
            recount.gpus(pod.spec) if name == GPU else pod.spec.request(name)
            for gang in self.scheduler.state.gangs.values()
            if gang.account is not None and gang.account.queue in inside
            for pod in gang.members.values()
            if pod.node and pod.alive
        )

    # --- placement ----------------------------------------------------------------------------------

    def placement(self, gang: Gang, found: Found, reason: str) -> str:
        waiting = recount.waiting(gang)
        named = sum(map(int, re.findall(r"(\d+) pods?", found["pods"])))
        missing = gang.missing()
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
        held = self._reservations(names[1].split(", ") if names else [])
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

    def _reservations(self, names: Sequence[str]) -> list[Reservation]:
        """In the order in which they take capacity."""
        every = {held.gang.qualified_name: held for held in self.scheduler.reservations.values()}
        assert set(names) <= set(every), f"no reservations: {set(names) - set(every)}"
        return [held for name, held in every.items() if name in names]

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
        fits = sum(self._capacity(spec, node, held) for node in usable)
        said = int(match["fits"])
        assert int(match["count"]) in counts, f"of {counts}"
        counted = spec.rules is None and not spec.matched and spec.volumes is None
        whole = counted and not spec.share_containers and not spec.rdma_containers
        if level in ("island", "NUMA node"):
            whole = False
        assert fits == said if whole else fits >= said, f"{fits} fit"
        refused: Counter[str] = Counter()
        for each in (match["details"] or "").split("; "):
            if refusal := re.fullmatch(r"(\d+) nodes?: (.*)", each):
                refused[refusal[2]] += int(refusal[1])
            elif each:
                self._detail(spec, usable, held, each, exact=counted)
        expected = Counter(why for node in self.nodes if (why := recount.refusal(spec, node)))
        for why, count in expected.items():
            assert refused[why] == count, f"{count} nodes: {why}"
        assert refused == expected or not counted, f"refused by nothing: {refused - expected}"
        if match["never"]:
            self._never(spec, level, match["never"])

    def _named_nodes(self, gang: Gang, match: Found, level: str) -> list[ClusterNode]:
        """The nodes of the candidate that the sentence names."""
        name = match["best"] or (match["at"] or "").rpartition(" ")[2]
        if not name:
            return self.nodes
        if level in ("", "node", "island", "NUMA node"):
            return [node for node in self.nodes if node.name == name]
        return [node for node in self.nodes if name in self._domain(node, level)]

    def _domain(self, node: ClusterNode, level: str) -> tuple[str, ...]:
        """The node's domain of the level; empty: it is in none."""
        columns = self.scheduler.state.snapshot.columns
        for key, value in columns.domains.annotations(columns.row[node.name]):
            if key.rpartition("/")[2] == level:
                return (value,)
        return ()

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
            free = sum(self._free(node, GPU) for node in usable)
            total = sum(node.allocatable().get(GPU, 0) for node in usable)
            kept = free - sum(self._free(node, GPU, held) for node in usable)
            said = tuple(int(number or 0) for number in match.group(1, 2, 3, 4))
            if exact:
                assert said == (free, total, len(usable), kept), (free, total, len(usable), kept)
            else:
                assert all(a <= b for a, b in zip(said, (free, total, len(usable)), strict=False))
            if exact and kept and " more" not in match[5]:
                left = [
                    sum(self._free(node, GPU, held[:count]) for node in usable)
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
            enough = sum(max(self._free(n, name, held), 0) // spec.request(name) for n in usable)
            assert enough == int(match[2]), f"enough {name} for {enough}"
        elif match := re.fullmatch(r"(\d+) of (\d+) (\S+) slices free on (\d+) nodes?", detail):
            free = sum(max(self._free(node, MIG + match[3], held), 0) for node in usable)
            total = sum(node.allocatable().get(MIG + match[3], 0) for node in usable)
            numbers = tuple(int(number) for number in match.group(1, 2, 4))
            assert numbers == (free, total, len(usable)) or not exact, (free, total, len(usable))
        else:
            words = r"there are no .*|no node there offers.*|\d+ hundredths of GPUs.*"
            assert re.fullmatch(words, detail), f"unknown words: {detail}"

    def _never(self, spec: PodSpec, level: str, text: str) -> None:
        text, _, refused = text.removeprefix("can never start: ").partition(" (")
        if refused:
            counts = Counter(why for node in self.nodes if (why := recount.lasting(spec, node)))
            said = [part.split(" ", 2)[::2] for part in refused.rstrip(")").split("; ")]
            assert {why: int(count) for count, why in said} == counts, f"{counts}"
        usable = [node for node in self.nodes if not recount.lasting(spec, node)]
        if match := re.match(
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
            if level in ("island", "NUMA node"):
                return
            sums: Counter[str] = Counter()
            for node in usable:
                for name in (node.name,) if level == "node" else self._domain(node, level):
                    sums[name] += recount.when_empty(spec, node)
            most = max(sums.values())
            assert most == int(match[2]), f"the largest fits {most}"
        elif match := re.fullmatch(r"they need (\d+) GPUs, .* have (\d+)", text):
            assert int(match[1]) > int(match[2])
        else:
            words = r"no node (that they may use )?has (all that|label).*|topology level.*"
            assert re.match(words, text), f"unknown words: {text}"

    # --- counting -------------------------------------------------------------------------------------

    def _capacity(self, spec: PodSpec, node: ClusterNode, held: Sequence[Reservation]) -> int:
        return max(
            0, min(self._free(node, name, held) // asked for name, asked in spec.requests if asked)
        )

    def _free(self, node: ClusterNode, name: str, held: Iterable[Reservation] = ()) -> int:
        """Free on the node now, without what is reserved for others."""
        held = list(held)
        free = node.allocatable().get(name, 0)
        free -= sum(pod.spec.request(name) for pod in node.pods.values() if pod.alive)
        reserved = [self._reserved(each, node, name) for each in held]
        free -= sum(amount for amount, _ in reserved)
        if name != GPU:
            return free
        if node.report is None:
            return max(free, 0)
        taken = set(indices_of(node.foreign_gpus)) | set(node.foreign_shares)
        for mask in [pod.gpus for pod in node.pods.values()] + [mask for _, mask in reserved]:
            taken |= set(indices_of(mask))
        healthy = {gpu.index for gpu in node.report.topology.gpus if gpu.healthy and not gpu.mig}
        return min(max(free, 0), len(healthy - taken))

    def _reserved(self, held: Reservation, node: ClusterNode, name: str) -> tuple[int, int]:
        """The amount and the GPU mask that the reservation keeps free on the node."""
        columns = self.scheduler.state.snapshot.columns
        for index, row in enumerate(held.place.rows.tolist()):
            if columns.names[row] == node.name:
                column, amounts = columns.column[name], held.withheld[index].tolist()
                return sum(amounts[column : column + 1]), held.place.masks[index]
        return 0, 0


Check = Callable[[ReasonChecker, Gang, Found, str], str]
_QUEUE = r"queue (?P<queue>\S+?)(?: \(above \S+\))?"
CHECKS: tuple[tuple[str, Check], ...] = (
    (r"needs (\d+) pods to start, (\d+) exist(?:$|; )", ReasonChecker.minimum),
    (r"needs (\d+) more pods to start, (\d+) pending(?:$|; )", ReasonChecker.more_pods),
    (
        r"subGroupPolicy (?P<policy>\S+) needs (?P<least>\d+) subgroups of (?P<size>\d+) pods to start,"
        r" the existing pods complete (?P<whole>\d+)(?:$|; )",
        ReasonChecker.whole_subgroups,
    ),
    (
        r"(?:needs (?P<more>\d+) more pods in complete subgroups to start; )?(?:(?P<pending>\d+)"
        r" pending|subgroup (?P<name>\S+) has (?P<exist>\d+) of (?P<size>\d+) pods)(?:$|; )",
        ReasonChecker.pods_of_subgroup,
    ),
    (r"(\d+) of (\d+) pods are held by scheduling gates(?:$|; )", ReasonChecker.gated),
    (
        rf"{_QUEUE} uses (?P<used>\S+) of its capability of (?P<most>\S+) (?P<resource>\S+?)"
        r"(?:, \S+ are reserved \(minResources\))?"
        r"(?:, \S+ are kept for gangs whose victims terminate)?; \S+ more (?:is|are) needed(?:$|; )",
        ReasonChecker.capability,
    ),
    (
        rf"can never start: {_QUEUE} has a capability of (?P<most>\S+) (?P<resource>\S+?);"
        r" \S+ (?:is|are) needed; ",
        ReasonChecker.capability,
    ),
    (
        r"needs \S+ (?P<resource>\S+); (?P<free>\S+) are free, of which (?P<kept>\S+) are guaranteed"
        r" to queues? (?P<queues>[^;]*)(?:$|; )",
        ReasonChecker.guaranteed,
    ),
    (
        r"needs \S+ (?P<resource>\S+(?: slices?)?)(?: \(spec\.minResources[^)]*\))?; the cluster has"
        r" (?P<free>\S+) free(?:, of which \S+ are reserved for [^;]* \(minResources\))?(?:$|; )",
        ReasonChecker.min_resources,
    ),
    (PODS, ReasonChecker.placement),
)
