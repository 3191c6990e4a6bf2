"""What rules and volumes read about placed pods, against sums over the pods."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from central.model.facts import NodeSeen, PodSpec, Taint
from central.model.pod_rules import Apart, Port, Rules
from central.model.volumes import AttachLimits, Volumes
from central.scheduler.filters.pod_counts import ANY, MatchingPodCounts, TopologyDomains
from tests.central import factories
from tests.central.scheduler import recounts

A, B = factories.mates("a"), factories.mates("b")
WEB, LOCAL = Port("TCP", 80), Port("TCP", 80, "127.0.0.1")


def node(name: str, **more: object) -> NodeSeen:
    found = factories.node(name, **more)  # type: ignore[arg-type]  # a test's shorthand
    assert isinstance(found, NodeSeen)
    return found


def counts(rows: int = 4) -> MatchingPodCounts:
    found = MatchingPodCounts()
    for row in range(rows):
        found.put_node(row, node(f"n{row}", labels={"zone": f"z{row // 2}"}), row + 1)
    return found


def spec(
    *matched: int,
    apart: tuple[Apart, ...] = (),
    ports: tuple[Port, ...] = (),
    volumes: Volumes | None = None,
) -> PodSpec:
    rules = Rules(apart=apart, ports=ports) if apart or ports else None
    return replace(factories.spec(), matched=matched, rules=rules, volumes=volumes)


@pytest.mark.parametrize("seed", range(5))
def test_counts_follow_pods_that_come_and_go(seed: int) -> None:
    dice, found = random.Random(seed), counts()
    a, b = found.track(A), found.track(B)
    classes = [
        spec(a),
        spec(a, b, apart=(Apart(B, "zone"), Apart(B, "rack"))),
        spec(ports=(WEB,)),
        spec(b, ports=(LOCAL, WEB)),
        spec(volumes=Volumes(attach=(("csi", 2),), exclusive=("ns/one",))),
        spec(volumes=Volumes(common=(("csi", "ns/shared"), ("other", "ns/more")))),
    ]
    there: list[tuple[int, PodSpec]] = []
    rows = 4
    for step in range(120):
        if step == 60:
            found.put_node(rows, node("late"), rows + 1)
            rows += 1
        if there and dice.random() < 0.45:
            row, one = there.pop(dice.randrange(len(there)))
            change = -1
        else:
            row, one, change = dice.randrange(rows), dice.choice(classes), 1
            there.append((row, one))
        before = {each: found.version(each) for each in classes}
        found.count(row, one, change)
        assert recounts.nonzero(found) == recounts.expected(found, there)
        assert found.version(one) != before[one]
        shared = [at for at, each in there if each is classes[5]]
        assert np.flatnonzero(found.attached_for("ns/shared")).tolist() == sorted(set(shared))
        held = Counter(at for at, each in there if each is classes[4])
        assert found.claim_users("ns/one").tolist() == [held[at] for at in range(rows)]
        assert found.matching(A).tolist() == [
            sum(at == row and a in each.matched for at, each in there) for row in range(rows)
        ]


def test_versions_change_with_what_a_class_reads_and_with_nothing_else() -> None:
    found = counts()
    a, b = found.track(A), found.track(B)
    reads_b = spec(apart=(Apart(B, "zone"),))
    of_a, of_port = spec(a), spec(ports=(WEB,))
    sharing = spec(volumes=Volumes(common=(("csi", "ns/shared"),)))
    alone = spec(volumes=Volumes(attach=(("csi", 1),), exclusive=("ns/one",)))
    watched = (reads_b, of_a, of_port, sharing, alone)

    def changed(counted: PodSpec) -> list[bool]:
        before = [found.version(each) for each in watched]
        found.count(0, counted, 1)
        return [old != found.version(each) for old, each in zip(before, watched, strict=True)]

    assert changed(spec(b)) == [True, False, False, False, False]
    assert changed(spec(a)) == [False, True, False, False, False]
    assert changed(spec(ports=(LOCAL,))) == [False, False, True, False, False]
    assert changed(spec(volumes=Volumes(attach=(("csi", 1),)))) == [False, False, False, True, True]
    assert changed(spec(volumes=Volumes(exclusive=("ns/one",)))) == [
        False,
        False,
        False,
        False,
        True,
    ]
    before = [found.version(each) for each in watched]
    found.put_limits("n0", {"csi": 5})
    assert all(old != found.version(each) for old, each in zip(before, watched, strict=True))


def test_peers_that_are_tracked_no_more_count_nothing() -> None:
    found = counts()
    a = found.track(A)
    found.count(1, spec(a), 2)
    assert found.matching(A).tolist() == [0, 2, 0, 0]
    assert found.matched_by(A, spec(a))
    found.untrack(A)
    assert found.matching(A).tolist() == [0, 0, 0, 0]
    assert not found.matched_by(A, spec(a))
    found.count(1, spec(a), -2)
    assert recounts.nonzero(found) == {}
    assert found.track(A) != a, (
        "what was counted under the old number is not taken for the new one's"
    )


def test_ports_conflict_as_their_addresses_do() -> None:
    found = counts()
    other = Port("TCP", 80, "10.0.0.1")
    found.count(0, spec(ports=(WEB,)), 1)
    found.count(1, spec(ports=(LOCAL,)), 1)
    found.count(2, spec(ports=(Port("UDP", 80), Port("TCP", 81))), 1)
    assert found.port_conflicts(WEB).tolist() == [1, 1, 0, 0]
    assert found.port_conflicts(LOCAL).tolist() == [1, 1, 0, 0]
    assert found.port_conflicts(other).tolist() == [1, 0, 0, 0]


def test_volumes_are_attached_up_to_the_limit_of_their_driver_and_node() -> None:
    found = counts()
    found.put_limits("n0", {"csi": 3})
    found.put_limits("n1", {"other": 3})
    found.count(0, spec(volumes=Volumes(attach=(("csi", 2),))), 1)
    for _ in range(2):
        found.count(0, spec(volumes=Volumes(common=(("csi", "ns/shared"),))), 1)
    assert found.attach_capacity("csi").tolist() == [0, ANY, ANY, ANY]
    assert found.attach_capacity("other").tolist() == [ANY, 3, ANY, ANY]
    assert found.recorded_limits() == [
        AttachLimits("n0", (("csi", 3),)),
        AttachLimits("n1", (("other", 3),)),
    ]
    found.put_node(0, None, 4)
    assert found.attach_capacity("csi")[0] >= ANY - 3, "the node is gone"


def test_soft_taints_are_known_by_row() -> None:
    found = counts(2)
    found.put_node(1, node("n1", taints=(Taint("k", "", "PreferNoSchedule"),)), 2)
    found.put_node(0, node("n0", taints=(Taint("k", "", "NoSchedule"),)), 2)
    assert found.soft_tainted == {1}
    found.put_node(1, node("n1"), 2)
    assert found.soft_tainted == set()


def test_domains_are_summed_over_the_rows_that_are_in_one() -> None:
    domains = TopologyDomains("zone")
    domains.grow(5)
    for row, zone in enumerate(("x", "y", "x", "", None)):
        domains.put(row, {} if zone is None else {"zone": zone})
    assert domains.names == ["x", "y", ""]
    here = np.array([1, 2, 4, 8, 16], dtype=np.int64)
    assert domains.sums(here).tolist() == [5, 2, 8]
    assert domains.sums(here, np.array([0, 1, 4])).tolist() == [1, 2, 0]
    assert not domains.single()
    domains.put(2, {"zone": "z"})
    assert domains.single()
    assert domains.sums(here).tolist() == [1, 2, 8, 4]


def test_domains_of_a_new_key_are_read_from_the_nodes_and_follow_them() -> None:
    found = counts()
    assert found.domains("zone").of.tolist() == [0, 0, 1, 1]
    found.put_node(3, None, 4)
    found.put_node(0, node("n0", labels={"zone": "z1"}), 4)
    found.put_node(4, node("n4", labels={"zone": "z0"}), 5)
    assert found.domains("zone").of.tolist() == [1, 0, 1, -1, 0]


def test_claims_and_nodes_that_are_gone_leave_nothing() -> None:
    """New ones have new names: a column for each claim would be kept for ever."""
    found = counts()
    users = spec(volumes=Volumes(common=(("csi", "ns/shared"),), exclusive=("ns/one",)))
    found.count(1, users, 2)
    assert (*found.attached_for("ns/shared"), *found.claim_users("ns/one")) == (
        *(0, 1, 0, 0),
        *(0, 2, 0, 0),
    )
    found.count(1, users, -2)
    assert found._claims == found._common == {}
    found.put_limits("n0", {"csi": 3})
    found.put_limits("n0", {})
    assert found.recorded_limits() == []


def test_host_names_of_nodes_that_have_gone_are_forgotten() -> None:
    """Each node of an autoscaled cluster has a name that never comes again."""
    found = counts()
    assert len(found.domains("host").names) == 0
    for number in range(1000):
        found.put_node(3, None, 4)
        found.put_node(3, node(f"m{number}", labels={"host": f"m{number}"}), 4)
        domains = found.domains("host")
        assert domains.names[domains.of[3]] == f"m{number}"
        assert domains.of[:3].tolist() == [-1, -1, -1]
    assert len(found.domains("host").names) < 200
