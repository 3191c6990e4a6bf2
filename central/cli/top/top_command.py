"""`lockstep top`: asks the scheduler again and again, draws, and reads keys. Without a terminal it prints one screen.

Design: docs/design/command-line.md
"""

import argparse
import os
import re
import select
import shutil
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from central.cli import render, scheduler_access, terminal_table
from central.cli.top import cluster_view, screen
from central.cli.top.cluster_view import ClusterView
from central.cli.top.screen import ScreenState
from central.server.grpc import query_client

if TYPE_CHECKING:
    pass

NOTES = {  # for users who lack a right
    "nodes": "no racks: you may not get nodes",
    "queues": "only the queues of your gangs: you may not get queues",
}
STYLE = re.compile(r"\x1b\[[0-9;]*m")
KEY = re.compile(rb"\x1b\[[0-9;]*[@-~]|\x1bO.|\x1b.|.", re.DOTALL)  # one key's code
TICK_S = 0.2  # between two looks at the terminal's size and at new answers
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
CODES = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"\x1b[5~": "pageup",
    b"\x1b[6~": "pagedown", b"\r": "enter", b"\n": "enter", b"\t": "tab", b"\x1b": "escape",
}  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Raises query_client.CannotAsk if the scheduler does not answer at the beginning."""
    source = _Source(args)
    view = source.view()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        width = terminal_table.width() or 120
        for tab in screen.TABS:
            height = 6 + len(getattr(view, tab))
            lines = screen.draw(ScreenState(tab=tab), view, width, height, style=screen.plain)
            print("\n".join(lines[2 if tab != screen.TABS[0] else 0 : -2]).rstrip() + "\n")
        for note in view.notes:
            print(f"lockstep: {note}", file=sys.stderr)
        return 0
    with _terminal():
        _follow(args, source, view)
    return 0


class _Source:
    """Asks for what is shown."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._where = scheduler_access.scheduler_address(args)
        self._args = args

    def view(self) -> ClusterView:
        """Raises CannotAsk."""
        try:
            return self._view()
        except query_client.CannotAsk as error:
            self._where = scheduler_access.renewed(self._args, error)
        return self._view()

    def _view(self) -> ClusterView:
        where = self._where
        overview = query_client.page(where, "/api/overview")
        may = overview["may"]
        return ClusterView(
            cluster_view.racks_of(query_client.topology(where, "")) if may["nodes"] else (),
            cluster_view.queues_of(
                query_client.pages(where, "/api/queues"),
                query_client.pages(where, "/api/jobs", state="running"),
            ),
            cluster_view.pending_of(query_client.pages(where, "/api/pending")),
            overview["pending"]["hidden"],
            datetime.now().astimezone(),
            tuple(note for right, note in NOTES.items() if not may[right]),
            may["nodes"],
        )

    def explain(self, namespace: str, name: str) -> str:
        try:
            reply = query_client.explain(self._where, namespace, name)
        except query_client.CannotAsk as error:
            return str(error)
        if not reply.found:
            return f"The scheduler knows no gang {namespace}/{name} any more."
        lines = STYLE.sub("", render.explanation_table(reply)).splitlines()
        return "\n".join(map(terminal_table.printable, lines))


class _Fetcher(threading.Thread):
    """Asks in the background, so that keys are never late."""

    def __init__(self, source: _Source, view: ClusterView, interval_s: float) -> None:
        super().__init__(name="top", daemon=True)
        self._source, self._interval_s = source, interval_s
        self.view, self.problem = view, ""
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(self._interval_s):
            try:
                self.view, self.problem = self._source.view(), ""
            except query_client.CannotAsk as error:
                self.problem = str(error)


def _follow(args: argparse.Namespace, source: _Source, view: ClusterView) -> None:
    fetcher = _Fetcher(source, view, args.interval)
    fetcher.start()
    state, drawn = ScreenState(), [""]
    style = screen.coloured if terminal_table.coloured() else screen.monochrome
    try:
        while not state.quit:
            size = shutil.get_terminal_size()
            if state.explain is not None:
                state.text, state.explain = source.explain(*state.explain), None
            lines = screen.draw(
                state, fetcher.view, size.columns, size.lines, style=style, note=fetcher.problem
            )
            if lines != drawn:
                sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines))
                sys.stdout.flush()
                drawn = lines
            for key in _keys(TICK_S):
                screen.press(state, key, fetcher.view)
    finally:
        fetcher.stopping.set()


def _keys(wait_s: float) -> Sequence[str]:
    """Returns the typed keys; none after wait_s."""
    until = time.monotonic() + wait_s
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0]:
            typed = os.read(sys.stdin.fileno(), 64)
            if not typed:
                return ["q"]  # the terminal is gone
            return typed_keys(typed)
    return []


def typed_keys(typed: bytes) -> Sequence[str]:
    """Returns the keys, of which a held key or a turned wheel gives several at once. Unknown codes are left out."""
    codes = KEY.findall(typed)
    keys = [CODES.get(code, code.removeprefix(b"\x1b").decode(errors="replace")) for code in codes]
    return [key for key in keys if len(key) == 1 or key in CODES.values()]


@contextmanager
def _terminal() -> Iterator[None]:
    """Keys one by one and without echo, on the terminal's other screen; all of it is undone."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    sys.stdout.write(ENTER_SCREEN)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write(LEAVE_SCREEN)
        sys.stdout.flush()
