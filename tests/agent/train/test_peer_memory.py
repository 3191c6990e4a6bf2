"""Copies of state in the memory of other processes, over real connections.

Design: docs/design/training.md"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Client

import pytest

from agent.train import undo
from agent.train.peer_memory import CopyName, PeerMemory, PeerPlace, StateCopy, peer_distance
from tests.agent.train.workers import wait_for

TOKEN = b"a-token-of-tests-0123456789"


def place(node: str, rack: str = "r", port: int = 0) -> PeerPlace:
    return PeerPlace(node, rack, "127.0.0.1", port)


def at(memory: PeerMemory) -> PeerPlace:
    return place("n", port=memory.port)


def name(step: int, rank: int = 0) -> CopyName:
    return CopyName(1, step, rank, 2)


@pytest.mark.parametrize(
    ("ranks", "distance"),
    [
        ("", 0),
        ("a1", 0),
        ("a1 b1", 1),
        ("a1 a1 b1 b1", 2),
        ("a1 b1 c2 d2", 2),  # another rack before a nearer node
        ("a1 a1 b1 b1 c2 c2 d2 d2", 4),
        ("a1 a1 a1 b1", 1),  # no distance is good for all: the nearest of the best
        ("a1 a1 a1", 1),
    ],
)
def test_a_copy_is_on_another_node_and_in_another_rack(ranks: str, distance: int) -> None:
    assert peer_distance([place(one[0], one[1]) for one in ranks.split()]) == distance


def sent(memory: PeerMemory, step: int, peer: PeerPlace) -> StateCopy:
    made = StateCopy(b"plan %d" % step, b"content" * step)
    memory.send(name(step), lambda: made, peer)
    return made


def test_a_copy_without_a_peer_is_held_when_it_is_waited_for() -> None:
    mine, may_end = PeerMemory(TOKEN), threading.Event()

    def make() -> StateCopy:
        assert may_end.wait(20)
        return StateCopy(b"plan", b"content")

    mine.send(name(5), make, None)
    threading.Timer(0.1, may_end.set).start()
    mine.finish()
    assert mine.digests().keys() == {name(5)}


def test_a_copy_is_where_it_was_made_and_at_its_peer() -> None:
    mine, peer, other = PeerMemory(TOKEN), PeerMemory(TOKEN), PeerMemory(TOKEN)
    made = sent(mine, 5, at(peer))
    wait_for(lambda: name(5) in peer.digests(), "the copy arrives")
    assert mine.digests() == peer.digests() == {name(5): made.digest()}
    assert other.fetch(name(5), made.digest(), [at(other), at(peer)]) == made
    with pytest.raises(OSError, match="no copy of rank 0 after step 5 is whole"):
        other.fetch(name(5), "0" * 32, [at(mine), at(peer)])


def test_a_copy_that_arrives_damaged_is_not_held() -> None:
    memory, copy = PeerMemory(TOKEN), StateCopy(b"plan", b"content")
    with Client(("127.0.0.1", memory.port), authkey=TOKEN) as there:
        there.send_bytes(json.dumps(["put", name(1), copy.digest()]).encode())
        there.send_bytes(copy.plan)
        there.send_bytes(b"cantent")
        assert there.recv_bytes() == b"damaged"
    assert memory.digests() == {}


def test_the_copies_of_three_steps_are_held() -> None:
    """Of all ranks, and across a change of size: an older generation's step goes as any other."""
    memory = PeerMemory(TOKEN)
    copy = StateCopy(b"", b"")
    for step in (1, 2, 3, 4):
        for rank in (0, 1):
            memory.hold(name(step, rank), copy, "")
    memory.hold(CopyName(2, 3, 0, 1), copy, "")
    held = [(each.generation, each.step, each.rank) for each in memory.digests()]
    assert sorted(held) == [(1, 3, 0), (1, 3, 1), (1, 4, 0), (1, 4, 1), (2, 3, 0)]


def test_a_process_without_the_token_gets_and_changes_nothing() -> None:
    memory, thief = PeerMemory(TOKEN), PeerMemory(b"another token")
    copy = StateCopy(b"plan", b"content")
    memory.hold(name(1), copy, copy.digest())
    with pytest.raises(OSError, match="no copy of rank 0"):
        thief.fetch(name(1), copy.digest(), [at(memory)])
    sent(thief, 2, at(memory))
    sent(thief, 3, at(memory))  # waits for the one before
    assert list(memory.digests()) == [name(1)]
    with socket.create_connection(("127.0.0.1", memory.port)) as one:
        one.sendall(b"\xff" * 100)
    assert PeerMemory(TOKEN).fetch(name(1), copy.digest(), [at(memory)]) == copy


@pytest.fixture
def frozen() -> Iterator[PeerPlace]:
    """A peer that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield place("n", port=server.getsockname()[1])


def test_strangers_who_say_nothing_hold_no_thread_for_ever() -> None:
    memory, copy = PeerMemory(TOKEN, silent_s=1), StateCopy(b"plan", b"content")
    memory.hold(name(1), copy, copy.digest())
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(socket.create_connection(("127.0.0.1", memory.port)))

        def read() -> bool:
            with suppress(OSError):
                return PeerMemory(TOKEN).fetch(name(1), copy.digest(), [at(memory)]) == copy
            return False

        wait_for(read, "the copy is read")


def test_a_holder_that_stands_still_is_passed_over(frozen: PeerPlace) -> None:
    memory, copy = PeerMemory(TOKEN), StateCopy(b"plan", b"content")
    memory.hold(name(1), copy, copy.digest())
    reader = PeerMemory(TOKEN, silent_s=1)
    assert reader.fetch(name(1), copy.digest(), [frozen, at(memory)]) == copy


def test_a_peer_that_stands_still_delays_the_next_copy_until_its_loss_is_noticed(
    frozen: PeerPlace,
) -> None:
    memory = PeerMemory(TOKEN)
    undo.begin_turn()
    sent(memory, 1, frozen)
    threading.Timer(0.5, undo.break_turn).start()
    with pytest.raises(RuntimeError, match="a member was lost"):
        sent(memory, 2, frozen)
    undo.begin_turn()
    assert list(memory.digests()) == [name(1)], "the own copy is there"
    peer, newer = PeerMemory(TOKEN), CopyName(2, 2, 0, 1)
    memory.send(newer, lambda: StateCopy(b"", b""), at(peer))
    wait_for(lambda: newer in peer.digests(), "the next generation does not wait for it")
