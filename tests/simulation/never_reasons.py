"""Counts again what makes it certain that a gang can never start."""

import re
from collections import Counter
from collections.abc import Mapping

from central.model import wording
from central.model.facts import PodSpec
from central.model.pod_rules import Rules
from central.scheduler.state.gangs import Gang
from protos.names import GPU
from tests.simulation import recount
from tests.simulation.layered_reasons import LayeredCounts, short
from tests.simulation.reason_counts import StateCounts
from tests.simulation.reason_patterns import (
    PART_OF_ONE,
    PARTS,
    SHARED_NEVER,
    UNITS_WHEN_EMPTY,
    Found,
)

_NONE = r"no node(?: that they may use)? has"
TOO_LITTLE = re.compile(rf"{_NONE} (\S+) (\S+), the most is (\S+)")
ALL_BUT = re.compile(rf"{_NONE} all that one .*?requests; (\S+) has (.*)")


class NeverReasons:
    counts: StateCounts
    layered: LayeredCounts

    def _has_other_values(self, said: str) -> None:
        """said: which values of a label the nodes have; empty: nothing is said of it."""
        if not said:
            return
        match = re.fullmatch(r"; (\S+) is (.+)|; no node has label (\S+)", said)
        assert match, f"unknown words: {said}"
        key = match[1] or match[3]
        seen = [node.seen for node in self.counts.nodes if node.seen is not None]
        values = {each.labels[key] for each in seen if key in each.labels}
        assert (match[2] or "") == wording.some(values), f"{key} is {values}"

    def never(self, spec: PodSpec, needed: Mapping[str, int], text: str, gang: Gang) -> None:
        """needed: by level, how many pods there must be in one domain."""
        if UNITS_WHEN_EMPTY.search(text):
            return  # counted with the subgroups
        text, _, refused = text.removeprefix("can never start: ").partition(" (")
        if shared := SHARED_NEVER.fullmatch(text):
            self._apart(gang, shared, max(needed.values()))
            return
        if refused:
            refused, _, there = refused.partition(")")
            self._has_other_values(there)
            able = recount.able(spec, self.counts.nodes)
            counts = Counter(why for node in able if (why := recount.lasting(spec, node)))
            said = [part.split(" ", 2)[::2] for part in refused.split("; ")]
            assert {why: int(count) for count, why in said} == counts, f"{counts}"
        usable = [node for node in self.counts.nodes if not recount.lasting(spec, node)]
        if match := PART_OF_ONE.fullmatch(text):
            level = match[2]
            assert level in needed
            assert not any(map(recount.lacks_switches, usable)) or level != "PCIe switch"
            most = max(part for node in usable for part in recount.parts(node, level))
            assert int(match[3]) == most < spec.request(GPU) == int(match[1]), f"at most {most}"
        elif TOO_LITTLE.match(text):
            for each in text.split("; "):
                match = TOO_LITTLE.fullmatch(each)
                assert match, f"unknown words: {each}"
                name, asked = recount.resource(match[2]), spec.request(recount.resource(match[2]))
                most = max([recount.most(node, name) for node in usable or self.counts.nodes])
                assert most < asked == recount.amount(name, match[1]), f"the most is {most}"
                assert wording.amount(name, most) == match[3], f"the most is {most}"
        elif match := ALL_BUT.fullmatch(text):
            (node,) = [each for each in self.counts.nodes if each.name == match[1]]
            has = [
                f"{recount.said(name, recount.most(node, name))} of {wording.quantity(name, asked)}"
                for name, asked in spec.requests
                if recount.most(node, name) < asked
            ]
            assert has == match[2].split(" and "), f"it has {has}"
        elif match := re.match(r"no node may run (?:such a pod|the (.*))", text):
            assert not usable
            assert not match[1] or recount.is_of_kind(spec, match[1]), "another kind of pods"
        elif match := re.fullmatch(r"even if empty, .* fits? (\d+)", text):
            most = sum(recount.when_empty(spec, node) for node in usable)
            assert most == int(match[1]) < needed[""], f"{most} fit"
        elif match := re.fullmatch(r"even if empty, no (.*) fits more than (\d+)", text):
            level = match[1]
            assert int(match[2]) < needed[level], f"no more than {needed[level]} are needed"
            if level in PARTS:
                return
            sums: Counter[str] = Counter()
            for node in usable:
                sums[self.layered.empty_place(node, level)] += recount.when_empty(spec, node)
            most = max(sums.values())
            assert most == int(match[2]), f"the largest fits {most}"
        elif match := re.fullmatch(r"they need (\d+) GPUs, .* have (\d+)", text):
            assert int(match[1]) > int(match[2])
        else:
            words = r"no node has label.*|topology level.*"
            assert re.match(words, text), f"unknown words: {text}"

    def _apart(self, gang: Gang, found: Found, most_needed: int) -> None:
        """No more pods fit than there are domains with nodes that one of them may use."""
        specs = {pod.spec for pod in recount.waiting(gang) if pod.spec.rules is not None}
        keys = {rule.key for spec in specs for rule in (spec.rules or Rules()).apart}
        key = next(
            (key for key in keys if short(key) == found["noun"] or key.endswith("/hostname")), ""
        )
        assert int(found["pods"]) <= max(most_needed, len(recount.waiting(gang)))
        level = found["level"] or found["place"] or ""
        domains: dict[str, set[str]] = {}
        for node in self.counts.nodes:
            if any(
                not recount.lasting(spec, node) and recount.may_fit_empty(spec, node)
                for spec in specs
            ):
                labels = node.merged().labels if key else {}  # type: ignore[union-attr]  # seen
                place = self.layered.empty_place(node, level)
                domains.setdefault(place, set()).add(
                    labels.get(key, "") if found["noun"] != "node" else node.name
                )
        most = max(map(len, domains.values()), default=0)
        assert most < int(found["pods"]), f"{most} are enough"
        assert int(found["most"] or found["inside"] or 1) == most, f"there are {most}"
