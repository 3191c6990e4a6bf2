"""Which connections are ended when a member is lost: those that event loops outside of Python wait for."""

import select
import selectors
import socket

from agent.train import collectives, undo


def test_selectors_of_python_are_left_alone() -> None:
    """A bare epoll stands for a loop of C++."""
    ours, theirs = socket.socketpair()
    with ours, theirs, selectors.EpollSelector() as selector, select.epoll() as loop:
        selector.register(ours, selectors.EVENT_READ)
        loop.register(theirs, select.EPOLLIN)
        found = collectives._waited_for()
        assert theirs.fileno() in found
        assert ours.fileno() not in found


def test_sockets_within_the_node_are_left_alone() -> None:
    """Pipes of loaders and event loops have no port: their end would be that of the thread that ends collectives."""
    before = frozenset(collectives.sockets().values())
    ours, theirs = socket.socketpair()
    with ours, theirs, select.epoll() as loop:
        loop.register(theirs, select.EPOLLIN)
        try:
            assert collectives.abort(before, 1) == 0
        finally:
            undo.begin_turn()
        ours.send(b"on")
        assert theirs.recv(2) == b"on"
