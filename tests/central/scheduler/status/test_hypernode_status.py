"""The API server has the right status of each HyperNode in the end, whatever it answers, with few writes."""

import random
from typing import Any

import pytest

from central.model.decisions import SetStatus
from central.model.facts import Answered, HyperNodeSeen
from central.model.timestamps import stamp
from central.scheduler.inventory.hypernode_tree import HyperNodeTree
from central.scheduler.status.hypernode_status import HyperNodeStatuses

APART_S, FAILED_S = 1.0, 10.0


def answer(name: str, why: str = "", code: int = 0, kind: str = "HyperNode") -> Answered:
    return Answered("SetStatus", kind, "", name, why=why, code=code)


class Cluster:
    """HyperNodes that come and go, their trouble and sizes, and the API server."""

    def __init__(self) -> None:
        self.statuses = HyperNodeStatuses()
        self.seen: dict[str, HyperNodeSeen] = {}
        self.errors: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.since: dict[str, tuple[str, str]] = {}  # the trouble, and since when
        self.stored: dict[str, Any] = {}
        self.in_flight: dict[str, Any] = {}
        self.not_before: dict[str, float] = {}
        self.writes = self.made = 0

    def change(self, dice: random.Random) -> None:
        for name in dice.sample("abcd", 2):
            kind = dice.randrange(5)
            if kind == 0 and self.seen.pop(name, None) is not None:
                for of in (self.since, self.stored, self.not_before):
                    of.pop(name, None)
            elif kind == 1:
                self.errors[name] = dice.choice(("", "overlaps", "no such node"))
            elif kind == 2:
                self.sizes[name] = dice.randrange(3)
            elif name not in self.seen:
                self.made += 1
                uid = "" if name == "d" else f"uid-{self.made}"
                self.seen[name] = HyperNodeSeen(name, 1, uid=uid)
        self.statuses.changed([*"abcd"])

    def expected(self, name: str) -> dict[str, Any]:
        why, since = self.since[name]
        condition = {
            "type": "Usable",
            "status": "False" if why else "True",
            "reason": "Trouble" if why else "InTheTree",
            "message": why,
            "lastTransitionTime": since,
        }
        return {"nodeCount": self.sizes.get(name, 0), "conditions": [condition]}

    def decide(self, now: float) -> None:
        tree = HyperNodeTree()
        tree._wrong.update(self.errors)
        tree.sizes.update(self.sizes)
        dues = self.statuses.writes.due(now)
        decisions = self.statuses.decide(self.seen, tree, now)
        for gone in self.not_before.keys() - self.seen.keys():
            del self.not_before[gone]
        for each in decisions:
            assert isinstance(each, SetStatus)
            assert (each.kind, each.namespace, each.uid) == (
                "HyperNode",
                "",
                self.seen[each.name].uid,
            )
            assert each.name not in self.in_flight, "one write at a time"
            assert now >= self.not_before.get(each.name, 0.0)
            why = self.errors.get(each.name, "")
            if self.since.get(each.name, (None, ""))[0] != why:
                self.since[each.name] = why, stamp(now)
            assert each.status == self.expected(each.name)
            assert each.status != self.stored.get(each.name), "it is written already"
            self.in_flight[each.name] = each.uid, each.status
            self.not_before[each.name] = now + APART_S
            self.writes += 1
            assert now in dues
        assert all(time > now or not decisions for time in self.statuses.writes.due(now))

    def reply(self, dice: random.Random, now: float, *, always: bool = False) -> None:
        for name in [*self.in_flight]:
            if not always and dice.random() < 0.5:
                continue
            self.statuses.writes.answered(answer(name, kind="Queue"), now)
            (uid, status), kind = self.in_flight.pop(name), dice.randrange(4)
            there = name in self.seen and self.seen[name].uid == uid
            if always or kind == 0:
                self.stored |= {name: status} if there else {}
                self.statuses.writes.answered(answer(name), now)
            elif kind == 1:  # it is gone, and nothing more is to be written
                self.stored |= {name: status} if there else {}
                self.statuses.writes.answered(answer(name, "not found", 404), now)
            else:
                refused = answer(name, "try again", 503)
                self.not_before[name] = now + FAILED_S
                self.statuses.writes.answered(refused, now, lost=kind != 2)


@pytest.mark.parametrize("seed", range(20))
def test_each_has_its_status_in_the_end(seed: int) -> None:
    dice, cluster, now = random.Random(seed), Cluster(), 100.0
    for _ in range(60):
        now += dice.choice((0.3, 0.7, 1.0, 6.0))
        if dice.random() < 0.4:
            cluster.change(dice)
        cluster.reply(dice, now)
        cluster.decide(now)
    for _ in range(30):
        now += 1.0
        cluster.reply(dice, now, always=True)
        cluster.decide(now)
    assert cluster.statuses.writes.due(now) == []
    named = {name for name, seen in cluster.seen.items() if seen.uid}
    assert {name for name in cluster.stored if name in cluster.seen} == named
    for name in named:
        assert cluster.since[name][0] == cluster.errors.get(name, "")
        assert cluster.stored[name] == cluster.expected(name)
    assert cluster.writes > 4
    before = cluster.writes
    cluster.statuses.changed(cluster.seen)
    cluster.decide(now + 20.0)
    assert cluster.writes == before, "an unchanged status is not written again"
