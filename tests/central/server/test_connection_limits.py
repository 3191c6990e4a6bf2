"""Which connections may exist, on invented times."""

import random

from central.server.grpc.connection_limits import ConnectionTable, Limits, Owner

LIMITS = Limits(
    unknown_per_peer=3, unknown=6, unknown_s=10, fair=1, per_agent=2, per_user=2, agents=3, users=2
)
JANE, AGENT = Owner("jane"), Owner("agent", "n1")


def table(limits: Limits = LIMITS) -> ConnectionTable:
    return ConnectionTable(limits)


def accepted(made: ConnectionTable, connection: int, peer: str, now: float) -> list[int]:
    """Of a client that sends something at once."""
    closed = made.accept(connection, peer, now)
    made.spoke(connection)
    return closed


def test_a_peer_has_few_unknown_connections() -> None:
    made = table()
    assert [accepted(made, number, "a", 0.0) for number in range(5)] == [[], [], [], [3], [4]]
    assert made.accept(5, "b", 0.0) == []  # another peer is not concerned
    assert made.counts() == {"unknown": 4, "agent": 0, "user": 0, "coordinator": 0}


def test_a_connection_that_had_its_chance_gives_way() -> None:
    made = table()
    for number in range(3):
        accepted(made, number, "a", 0.0)
    assert accepted(made, 3, "a", 0.9) == [3]
    assert accepted(made, 4, "a", 1.1) == [0]
    assert accepted(made, 5, "a", 1.1) == [1]


def test_silent_connections_give_way_at_once() -> None:
    made = table()
    accepted(made, 0, "a", 0.0)
    for number in (1, 2):
        made.accept(number, "a", 0.0)
    assert accepted(made, 3, "a", 0.0) == [1]
    assert made.accept(4, "a", 0.0) == [2]
    assert made.accept(5, "b", 0.0) == []
    assert made.accept(6, "a", 0.0) == [4]


def test_peers_with_many_give_way_to_others() -> None:
    for speak in (False, True):
        made = table()
        for number in range(6):
            made.accept(number, "ab"[number // 3], 100.0)
            if speak:
                made.spoke(number)
        assert made.accept(6, "c", 100.0) == [0]  # at once: a has more than its fair part
        made.spoke(6)
        assert made.accept(7, "d", 100.0) == [3]


def test_when_all_agents_come_at_once_the_first_may_finish() -> None:
    made = table()
    for number in range(6):
        accepted(made, number, f"peer{number}", 0.0)
    assert made.accept(6, "late", 0.5) == [6]
    assert made.accept(7, "late", 1.5) == [0]


def test_a_connection_must_show_a_token_in_time() -> None:
    made = table()
    made.accept(1, "a", 0.0)
    made.accept(2, "a", 2.0)
    assert made.next_deadline() == 10.0
    assert made.expired(9.9) == []
    made.accept(3, "b", 0.0)
    made.forget(3)
    assert made.expired(10.0) == [1]
    made.accept(1, "a", 1.0)
    made.admit(2, AGENT)
    assert made.expired(100.0) == [1]
    assert made.next_deadline() is None
    assert made.owner(2) == AGENT


def test_known_connections_take_no_places_of_unknown_ones() -> None:
    made = table()
    for number in range(3):
        made.accept(number, "a", 0.0)
    assert made.admit(0, AGENT) == []
    assert made.accept(3, "a", 0.0) == []
    assert made.admit(0, AGENT) == []  # each call says it again


def test_a_caller_keeps_its_newest_connections() -> None:
    made = table()
    for number in range(3):
        made.accept(number, str(number), 0.0)
    assert [made.admit(number, JANE) for number in range(3)] == [[], [], [0]]
    assert made.counts() == {"unknown": 0, "agent": 0, "user": 2, "coordinator": 0}


def test_users_take_no_places_of_agents() -> None:
    made = table()
    for number in range(6):
        made.accept(number, str(number), 0.0)
    assert made.admit(0, Owner("u0")) == made.admit(1, Owner("u1")) == []
    assert made.admit(2, Owner("u2")) == [2]
    assert made.admit(3, AGENT) == []


def test_a_connection_whose_calls_show_no_token_is_closed() -> None:
    made = table()
    for number in (1, 2):
        made.accept(number, "a", 0.0)
    assert [made.refuse(1) for _ in range(9)] == 7 * [[]] + [[1], []]
    assert made.refuse(2) == []
    assert made.counts()["unknown"] == 1


def test_the_counts_are_those_of_the_connections() -> None:
    """Whatever happens, in any order: no connection is counted twice, none is left behind."""
    pick = random.Random(1)
    made, alive, now = table(), set[int](), 0.0
    for number in range(5000):
        now += pick.random() * 0.4
        alive.add(number)
        alive -= set(made.accept(number, pick.choice("abcdefgh"), now))
        if pick.random() < 0.5:
            made.spoke(number)
        for each in pick.sample(sorted(alive), min(2, len(alive))):
            owner = pick.choice([JANE, AGENT, Owner("u"), Owner("agent", "n2"), Owner("v")])
            alive -= set(made.admit(each, owner))
        alive -= set(made.expired(now))
        if alive and pick.random() < 0.5:
            ended = pick.choice(sorted(alive))
            made.forget(ended)
            alive.discard(ended)
        counts = made.counts()
        assert sum(counts.values()) == len(alive)
        assert counts["unknown"] <= 6
        assert counts["agent"] <= 3
        assert counts["user"] <= 2
    for each in alive:
        made.forget(each)
    assert made == table()
    assert not [*made._per_peer], "peers that are gone are forgotten"


def test_coordinators_have_places_of_their_own() -> None:
    limits = Limits(per_coordinator=2, coordinators=3, users=0, agents=0)
    made = table(limits)
    for number in range(8):
        made.accept(number, str(number), 0.0)
    first, second = Owner("c", pod_uid="u1"), Owner("c", pod_uid="u2")
    assert [made.admit(number, first) for number in range(3)] == [[], [], [0]]
    assert [made.admit(number, second) for number in (3, 4)] == [[], [4]], "three in all"
    assert made.admit(5, Owner("u")) == [5]
    assert made.counts() == {"unknown": 2, "agent": 0, "user": 0, "coordinator": 3}
