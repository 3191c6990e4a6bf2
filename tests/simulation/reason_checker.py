"""Counts every number of a pending gang's reason again, from nodes, pods and queues, with plain loops. A reason of a
form that is not known here fails, so that a new sentence gets a count of its own."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod

from central.model.facts import PodSpec
from central.scheduler import refusal_reasons
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.reservation.reservation import Reservation, rough_most
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from protos.names import GPU, MIG
from tests.simulation import recount
from tests.simulation.lacking_nodes import LackingNodes
from tests.simulation.layered_reasons import LayeredCounts, unit_of
from tests.simulation.never_reasons import NeverReasons
from tests.simulation.queue_reasons import QueueReasons
from tests.simulation.reason_counts import StateCounts
from tests.simulation.reason_patterns import (
    BRIEF_ENOUGH,
    CANDIDATE,
    CERTAIN,
    CHECKS,
    FREE_GPUS,
    LACKING,
    NOWHERE,
    PARTS,
    PLAIN,
    TOGETHER,
    UNITS_WHEN_EMPTY,
    WRONG_PLURAL,
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


class ReasonChecker(QueueReasons, NeverReasons, LackingNodes):
    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.counts = StateCounts(scheduler)
        self.layered = LayeredCounts(self.counts)

    def check(self, gang: Gang, reason: str) -> None:
        assert not WRONG_PLURAL.search(reason), WRONG_PLURAL.findall(reason)
        if re.match(r"(\S.* (is|are) )?set aside after a failure of the scheduler", reason):
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
        if brief := BRIEF_ENOUGH.search(reason):
            held = self._withheld(reason)
            longest = [each.longest_run_s(self.scheduler.state.now) for each in held or ()]
            assert held is None or brief[1] == rough_most(min(longest)), longest
        rest, _, no_victims = rest.partition("no victims: ")
        if no_victims:
            self.no_victims(gang, no_victims)
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
        """So many of equal subgroups, or of equal groups of them, fit, each in one domain, all in one domain."""
        size = int(found["size"])
        numbers = [int(each) for each in re.findall(r"\d+", found["copies"])]
        pods, unit = prod(numbers) * size, unit_of(found["part"])
        if unit == "gang":
            waiting = len(recount.waiting(gang))
            assert gang.missing() <= pods <= waiting, f"{gang.missing()} of {waiting} are missing"
        levels = self._levels_of_groups(found, len(numbers))
        self.layered.check_levels(gang, unit, found["all"] or "")
        self.layered.check_groups(gang, levels, size)
        if self.layered.check_place(gang, unit, found["all"] or "", found["rest"]):
            return found["rest"].partition("; ")[2]
        if found["rest"].startswith("the cluster has no nodes"):
            assert not self.counts.nodes
            return found["rest"]
        held, what = self._withheld(reason), (found["all"] or "", levels, [*numbers, size])

        def check(spec: PodSpec, match: Found) -> None:
            self._units_fit(gang, spec, match, what, held or [])

        return self._any_spec(gang, found, check, sure=held is not None)

    def _levels_of_groups(self, found: Found, depth: int) -> list[str]:
        """The levels of the groups, the widest first, and of a subgroup."""
        said = re.findall(r", each (group |subgroup )?(?:in|under) one ([^,;]+)", found["each"])
        groups = [level for what, level in said if what == "group "]
        assert len(groups) == depth - 1, "each layer has a level"
        return [*reversed(groups), *([level for what, level in said if what != "group "] or [""])]

    def _units_fit(
        self,
        gang: Gang,
        spec: PodSpec,
        match: Found,
        what: tuple[str, list[str], list[int]],
        held: Sequence[Reservation],
    ) -> None:
        level, levels, (copies, *sizes) = what
        if units := UNITS_WHEN_EMPTY.search(match[0]):
            most = self.layered.most_in_one_when_empty(spec, level, levels, sizes)
            assert most == int(units[1]) < copies, f"{most} fit"
        needed = Counter({level: copies * prod(sizes)})
        for depth, each in enumerate(levels):
            needed[each] = max(needed[each], prod(sizes[depth:]))
        if match.re is CERTAIN:
            self.never(spec, needed, match["certain"], gang)
            return
        usable = [node for node in self.counts.nodes if not recount.refusal(spec, node)]
        where = self._named_nodes(gang, match, level)
        inside = [node for node in where if not recount.refusal(spec, node)]
        fits = self.layered.most_units(spec, levels, sizes, inside, held, around=level)
        counted = spec.rules is None and not spec.matched and spec.volumes is None
        exact = counted and not spec.share_containers and not spec.rdma_containers
        said = int(match["fits"])
        assert int(match["count"]) == copies, f"{copies} are needed"
        if match.string.startswith("the best node"):
            fits = max(
                (
                    self.layered.most_units(spec, levels, sizes, [n], held, around=level)
                    for n in usable
                ),
                default=0,
            )
        assert said == fits if exact else said <= fits, f"{fits} fit"
        if match["best"] and exact:
            every = {self.counts.place(node, level) for node in usable} - {None}
            for name in every:
                part = [node for node in usable if self.counts.place(node, level) == name]
                more = self.layered.most_units(spec, levels, sizes, part, held, around=level)
                assert more <= said, f"{name} fits {more}"
        there = where if match["at"] else self.counts.nodes
        inner = next((each for each in (levels[-1], level) if each in PARTS), level)
        self._details(spec, inner, match, inside, there=there, held=held, exact=counted)
        if match["never"]:
            self.never(spec, needed, match["never"], gang)

    def unlike_subgroups(self, gang: Gang, found: Found, reason: str) -> str:
        """Each fits by itself. Those that are needed are among those that wait."""
        named = sum(map(int, re.findall(r"(\d+) pods?", found["pods"])))
        unit, waiting = unit_of(found["part"]), recount.waiting(gang)
        self.layered.check_levels(gang, unit, found["level"] or "")
        there = [
            pods for pods in recount.subgroups(gang).values() if any(pod in waiting for pod in pods)
        ]
        apart = {pod.seen.uid for pods in recount.subgroups(gang).values() for pod in pods}
        alone = sum(pod.seen.uid not in apart for pod in waiting)
        assert 1 <= int(found["groups"]) <= len(there) + alone, f"{len(there)} wait"
        if unit == "gang" and named == len(waiting) and not alone:
            assert int(found["groups"]) == len(there), f"{len(there)} wait"
        least = gang.missing() if unit == "gang" else 1
        assert least <= named <= len(waiting), f"{gang.missing()} are missing"
        return found.string[found.end() :]

    # --- placement ----------------------------------------------------------------------------------

    def placement(self, gang: Gang, found: Found, reason: str) -> str:
        waiting = recount.waiting(gang)
        named = sum(map(int, re.findall(r"(\d+) pods?", found["pods"])))
        missing = gang.missing()
        unit = unit_of(found["part"])
        if unit != "gang":
            most = max(policy.size for policy in gang.subgroups) if unit == "subgroup" else named
            assert 1 <= named <= most, f"a subgroup has {most} pods"
            missing = 0
        whole = (
            gang.object is not None and gang.object.min_resources
        )  # of more pods than its minimum
        if missing and not gang.subgroups and not whole:  # subgroups are placed whole
            assert named == missing, f"{missing} are missing"
        assert missing <= named <= len(waiting), f"{missing} are missing"
        level, rest = found["level"] or "", found["rest"]
        if together := re.match(TOGETHER, rest):
            assert int(together[1]) < int(together[2]) == named
            rest = rest[together.end() :]
            if found_never := CERTAIN.match(rest):
                self.never(
                    recount.waiting(gang)[0].spec, {level: named}, found_never["certain"], gang
                )
                rest = rest[found_never.end() :]
            return rest
        if rest.startswith("each pod type fits on its own"):
            self.layered.check_levels(gang, unit, level)
            self._each_fits(gang, level, found["pods"], self._withheld(reason))
        if not (CERTAIN.match(rest) or CANDIDATE.match(rest) or NOWHERE.match(rest)):
            return rest
        if not CERTAIN.match(rest):
            self.layered.check_levels(gang, unit, level)
            if self.layered.check_place(gang, unit, level, rest):
                return rest.partition("; ")[2]
        kinds = re.split(r" and (?=\d+ pods?\b)", found["pods"])
        counts = {int(kind.split()[0]) for kind in kinds}
        if candidate := CANDIDATE.match(rest):
            which = f"{candidate['count']} {candidate['kind']}"
            assert which in kinds if len(kinds) > 1 else candidate["kind"] is None, "which pods"
        held, needed = self._withheld(reason), {level: max(counts)}

        def check(spec: PodSpec, match: Found) -> None:
            if match.re is CERTAIN:
                self.never(spec, needed, match["certain"], gang)
            else:
                self._candidate(gang, spec, level, (match, counts), held or [])

        return self._any_spec(gang, found, check, sure=held is not None)

    def _each_fits(
        self, gang: Gang, level: str, pods: str, held: Sequence[Reservation] | None
    ) -> None:
        """In the domain of the level that takes the most of them."""
        specs = {pod.spec for pod in recount.waiting(gang)}
        if held is None:
            return
        for count, gpus in re.findall(r"(\d+) pods? x (\d+) GPUs?", pods):
            most = 0
            for spec in (each for each in specs if each.request(GPU) == int(gpus)):
                fits: Counter[str | None] = Counter()
                for node in self.counts.nodes:
                    if not recount.refusal(spec, node):
                        place = self.counts.place(node, level)
                        fits[place] += self.counts.capacity(spec, node, held)
                del fits[None]
                most = max(most, *fits.values())
            assert most >= int(count), f"{most} pods of {gpus} GPUs fit"

    def _gpus_reserved(self, held: Reservation, node: ClusterNode) -> int:
        count, mask = self.counts.reserved(held, node, GPU)
        return max(count, mask.bit_count())

    def _withheld(self, reason: str) -> list[Reservation] | None:
        """The reservations that the numbers leave out; None: not all of them are named."""
        names = re.search(r"; excluding capacity reserved for ([^;]*)", reason)
        names = names or re.search(r" of them reserved for ([^;)]*)", reason)  # the same gangs
        if names and " more" in names[1]:
            return None
        return self.counts.reservations(names[1].split(", ") if names else [])

    def _any_spec(
        self, gang: Gang, found: Found, check: Callable[[PodSpec, Found], None], *, sure: bool
    ) -> str:
        """The reason is about one of the pods that wait. Returns what follows."""
        rest, problems = found["rest"], []
        match = CERTAIN.match(rest) or CANDIDATE.match(rest)
        assert match, f"unknown words: {rest}"
        if not sure:
            return rest[match.end() :]
        if "pods" in found.re.groupindex:
            kinds = re.split(r" and (?=\d+ pods?\b)", found["pods"])
        else:  # of subgroups
            kinds = re.findall(r" of (\d+ pods?(?: x [^,;]+)?)(?=[,;])", found[0])
        if match.re is CANDIDATE and match["kind"]:
            kinds = [match["kind"]]
        for spec in dict.fromkeys(pod.spec for pod in recount.waiting(gang)):
            if kinds and not any(recount.is_of_kind(spec, kind) for kind in kinds):
                continue
            try:
                check(spec, match)
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
        if level in PARTS and spec.request(GPU) and not match["at"]:
            fits = max((self._in_part(spec, level, node, held) for node in usable), default=0)
        said = int(match["fits"])
        assert int(match["count"]) in counts, f"of {counts}"
        counted = spec.rules is None and not spec.matched and spec.volumes is None
        whole = counted and not spec.share_containers and not spec.rdma_containers
        if level in PARTS and match["at"]:
            whole = False
        assert fits == said if whole else fits >= said, f"{fits} fit"
        if match["best"] and whole and level not in ("node", *PARTS):
            for name in {self.counts.place(node, level) for node in self.counts.nodes} - {None}:
                part = [
                    node for node in self.counts.nodes if self.counts.place(node, level) == name
                ]
                open_ = [node for node in part if not recount.refusal(spec, node)]
                more = sum(self.counts.capacity(spec, node, held) for node in open_)
                suits = self._when_empty(spec, part, match) >= self._when_empty(spec, where, match)
                assert more <= said or not suits, f"{name} fits {more}"
        there = where if match["at"] else self.counts.nodes
        self._details(spec, level, match, usable, there=there, held=held, exact=counted)
        if match["never"]:
            self.never(spec, {level: int(match["count"])}, match["never"], gang)

    def _when_empty(self, spec: PodSpec, nodes: Sequence[ClusterNode], match: Found) -> int:
        """How many of the pods the nodes take when empty."""
        if recount.changes(spec):
            return 0
        open_ = [node for node in nodes if not recount.lasting(spec, node)]
        return min(sum(recount.when_empty(spec, node) for node in open_), int(match["count"]))

    def _in_part(
        self, spec: PodSpec, level: str, node: ClusterNode, held: Sequence[Reservation]
    ) -> int:
        """How many pods the node's best island, NUMA node or PCIe switch takes."""
        parts = self.counts.free_parts(node, level, held)
        most = max((len(part) // spec.request(GPU) for part in parts), default=0)
        return min(most, self.counts.capacity(spec, node, held))

    def _details(
        self,
        spec: PodSpec,
        level: str,
        match: Found,
        usable: Sequence[ClusterNode],
        *,
        there: Sequence[ClusterNode],
        held: Sequence[Reservation],
        exact: bool,
    ) -> None:
        """What stands in brackets. usable: the candidate's nodes. there: those that may be refused."""
        refused: Counter[str] = Counter()
        usable = recount.able(spec, usable)
        details = (match["details"] or "").split("; ")
        lacks = [found for each in details if (found := LACKING.fullmatch(each))]
        if exact and not spec.share_containers and not spec.rdma_containers:
            expected_lacks = self.lacking(spec, usable, held)
            if int(match["fits"]) >= int(match["count"]):
                expected_lacks = set()
            assert {found[0] for found in lacks} == expected_lacks, f"lacking: {expected_lacks}"
        for each in details:
            if LACKING.fullmatch(each):
                continue
            if refusal := re.fullmatch(r"(\d+) nodes?: (.*)", each):
                refused[refusal[2]] += int(refusal[1])
            elif each:
                self._detail(spec, usable, held, each, exact=exact)
        outside = "" if match["at"] else level
        expected = self.refused(spec, outside, there, held)
        for node in there if spec.request(GPU) else ():
            if not recount.refusal(spec, node) and (why := recount.unknown_parts(node, level)):
                expected[why] += 1
        if exact:
            assert refused == expected, f"refused: {expected}"
        else:  # rules between pods, which are not counted, stand between
            for why, count in expected.items():
                starts = why.partition(", lack")[0]
                said = sum(number for each, number in refused.items() if each.startswith(starts))
                assert said >= count, f"{count} nodes: {why}"

    def _named_nodes(self, gang: Gang, match: Found, level: str) -> list[ClusterNode]:
        """The nodes of the candidate that the sentence names."""
        name = match["best"] or (match["at"] or "").rpartition(" ")[2]
        if not name:
            return self.counts.nodes
        if match["at"]:
            level = match["at"].split()[-2]
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
            said = tuple(int(number or 0) for number in match.group(1, 2, 3, "kept"))
            most = max((self.counts.free(node, GPU) for node in usable), default=0)
            on_one = most if most < spec.request(GPU) <= free else None
            assert (match["most"] and int(match["most"])) == on_one or not exact, f"{on_one} on one"
            sizes = [
                len(part)
                for each in usable
                for part in self.counts.free_parts(each, match["noun"] or "node", held)
            ]
            assert not (match["part"] and exact) or int(match["part"]) == max(sizes), sizes
            lost = sum(max(0, each.installed() - each.allocatable().get(GPU, 0)) for each in usable)
            assert int(match["ill"] or lost) == lost or not exact, f"{lost} are not offered"
            if exact:
                assert said == (free, total, len(usable), kept), (free, total, len(usable), kept)
            else:
                assert all(a <= b for a, b in zip(said, (free, total, len(usable)), strict=False))
            if exact and kept and " more" not in match["owners"]:
                # Two may reserve the same GPUs, and one may reserve some that are unhealthy now: who has these is not
                # said.
                named = match["owners"].split(", ")
                theirs = [
                    sum(self._gpus_reserved(each, node) for node in usable)
                    for each in held
                    if each.gang.qualified_name in named
                ]
                assert len(theirs) == len(named), f"{theirs} reserved for {named}"
                assert all(theirs), f"{theirs} reserved for {named}"
                assert sum(theirs) >= kept, f"{theirs} reserved for {named}"
        elif match := re.fullmatch(r"short of (.*): enough for (\d+)", detail):
            name = recount.resource(match[1])
            assert name == "volumes" or "NIC" in name, f"unknown words: {detail}"
        elif match := re.fullmatch(r"(\d+) of (\d+) (\S+) slices free on (\d+) nodes?", detail):
            free = sum(max(self.counts.free(node, MIG + match[3], held), 0) for node in usable)
            total = sum(node.allocatable().get(MIG + match[3], 0) for node in usable)
            numbers = tuple(int(number) for number in match.group(1, 2, 4))
            assert numbers == (free, total, len(usable)) or not exact, (free, total, len(usable))
        elif match := re.fullmatch(r"at most one of them per node .*: enough for (\d+)", detail):
            assert int(match[1]) <= len(usable), f"{len(usable)} nodes"
        elif match := re.fullmatch(r"nodes take only so many of them .*: enough for (\d+)", detail):
            assert int(match[1]) >= 1, "nothing fits"
        else:
            words = r"there are no .*|no node there offers.*|\d+ hundredths of GPUs.*"
            assert re.fullmatch(words, detail), f"unknown words: {detail}"
