"""`lockstep top` without a terminal, what it asks, and the keys that it reads."""

import os
import pty
import re
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from central.cli.main import parser
from central.cli.top import cluster_view, top_command
from central.cli.top.cluster_view import ClusterView
from central.server.grpc.query_client import UNREACHABLE, CannotAsk
from central.server.grpc.visibility import Viewer
from tests.central.cli.run_cli import AskedScheduler, Lockstep
from tests.central.server.test_query_service import WAITS, CannedAnswers

Json = dict[str, Any]


@pytest.fixture
def scheduler(asked_scheduler: AskedScheduler) -> None:
    asked_scheduler(CannedAnswers())


@pytest.mark.usefixtures("scheduler")
def test_without_a_terminal_it_prints_every_table_once(lockstep: Lockstep) -> None:
    head, racks, queues, pending = filter(None, re.split(r"\n\n+", lockstep("top")))
    assert "2 nodes, 2 GPUs, 1 used, 1 free; 1 pending and 2 of other namespaces" in head
    assert "r1" in racks
    assert "r1" not in queues
    assert [line.split()[0] for line in queues.splitlines()] == ["QUEUE", "default", "research"]
    assert "team/job/waits" in pending
    assert "needs 3 GPUs" in pending
    assert "\x1b" not in racks + queues + pending


def test_without_the_rights_to_see_nodes_and_queues_the_rest_is_shown(
    asked_scheduler: AskedScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    class Tenant(CannedAnswers):
        def page(self, path: str, query: Mapping[str, str], viewer: Viewer) -> Json:
            found = super().page(path, query, viewer)
            may = {"nodes": False, "queues": False}
            return {**found, "may": may} if path == "/api/overview" else found

    asked_scheduler(Tenant())
    assert top_command.run(parser().parse_args(["top"])) == 0
    shown = capsys.readouterr()
    assert "1 pending and 2 of other namespaces" in shown.out
    assert "node" not in shown.out
    assert "research" in shown.out
    assert "team/job/waits" in shown.out
    assert "no racks: you may not get nodes" in shown.err
    assert "only the queues of your gangs" in shown.err


@pytest.mark.usefixtures("scheduler")
def test_a_gang_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    source = top_command._Source(parser().parse_args(["top"]))
    assert "does not fit" in source.explain("default", "g")
    assert "\x1b" not in source.explain("default", "g")
    gone = "The scheduler knows no gang default/gone any more."
    assert source.explain("default", "gone") == gone
    monkeypatch.setenv("LOCKSTEP_SERVER", "127.0.0.1:1")
    away = top_command._Source(parser().parse_args(["top"]))
    assert away.explain("default", "g").startswith("no scheduler answers at 127.0.0.1:1")
    with pytest.raises(CannotAsk, match="no scheduler answers"):
        away.view()


def test_answers_come_in_the_background_and_failures_are_shown_until_the_next() -> None:
    first, last = ClusterView(), ClusterView(notes=("last",))

    class Source(top_command._Source):
        def __init__(self) -> None:
            self.seen: list[tuple[ClusterView, str]] = []

        def view(self) -> ClusterView:
            self.seen.append((fetcher.view, fetcher.problem))
            if len(self.seen) == 1:
                raise CannotAsk("away", UNREACHABLE)
            if len(self.seen) == 3:
                fetcher.stopping.set()
            return last

    source = Source()
    fetcher = top_command._Fetcher(source, first, 0.001)
    fetcher.start()
    fetcher.join(30)
    assert source.seen == [(first, ""), (first, "away"), (last, "")]
    assert fetcher.daemon


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Types into standard input; nothing: it ends."""
    ours, theirs = os.pipe()
    open_ends = [theirs]

    def write(keys: bytes) -> None:
        if keys:
            os.write(theirs, keys)
        else:
            os.close(open_ends.pop())

    with os.fdopen(ours) as standard_input:
        monkeypatch.setattr("sys.stdin", standard_input)
        yield write
    for each in open_ends:
        os.close(each)


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (b"\x1b[A", ["up"]),
        (b"\x1bOB", ["down"]),
        (b"\x1b[6~", ["pagedown"]),
        (b"\x1b", ["escape"]),
        (b"\r", ["enter"]),
        (b"q", ["q"]),
        (b"12\t", ["1", "2", "tab"]),
        (b"\x1bx", ["x"]),
        (b"", ["q"]),
    ],
)
def test_keys(keys: bytes, found: list[str], typed: Callable[[bytes], None]) -> None:
    typed(keys)
    assert list(top_command._keys(30.0)) == found


@pytest.mark.usefixtures("typed")
def test_without_keys_it_goes_on_after_a_while() -> None:
    begun = time.monotonic()
    assert list(top_command._keys(0.01)) == []
    assert time.monotonic() - begun >= 0.01


def test_the_terminal_is_as_it_was_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        before = termios.tcgetattr(theirs)
        with suppress(KeyError), top_command._terminal():
            assert not termios.tcgetattr(theirs)[3] & (termios.ECHO | termios.ICANON)
            assert capsys.readouterr().out == top_command.ENTER_SCREEN
            raise KeyError
        assert termios.tcgetattr(theirs) == before
    assert capsys.readouterr().out == top_command.LEAVE_SCREEN
    os.close(ours)


def test_keys_change_the_screen_until_q(
    typed: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    class Source(top_command._Source):
        def __init__(self) -> None:
            pass

        def explain(self, namespace: str, name: str) -> str:
            typed(b"q")  # once it is drawn
            return f"why {namespace}/{name} waits"

    view = ClusterView(pending=cluster_view.pending_of([WAITS]))
    typed(b"3\r")  # at once, as over a slow connection
    top_command._follow(parser().parse_args(["top", "--interval", "60"]), Source(), view)
    first, explained = capsys.readouterr().out.split("\x1b[H")[1:]
    assert "[1:racks]" in first
    assert "why team/waits-7 waits" in explained
    assert all(line.endswith("\x1b[K") for line in explained.split("\r\n"))
    for thread in threading.enumerate():
        if isinstance(thread, top_command._Fetcher):
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"\x1b[B" * 3, ["down"] * 3),  # a turn of the wheel
        (b"\x1bOA\x1b[Aq", ["up", "up", "q"]),
        (b"\x1b[5~\x1b[6~", ["pageup", "pagedown"]),
        (b"\x1b[3~\x1b[1;5Cs", ["s"]),  # Delete, and Ctrl-Right
        (b"\x1b", ["escape"]),
        ("ä".encode(), ["\ufffd", "\ufffd"]),
        (b"2\n", ["2", "enter"]),
    ],
)
def test_several_keys_at_once(typed: bytes, keys: list[str]) -> None:
    assert top_command.typed_keys(typed) == keys
