"""`lockstep top`: asks the scheduler and the API server again and again, draws, and reads keys. Without a terminal it
prints one screen.

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
from central.cli.jobs.api import GROUPS, QUEUES, Api, CannotDo, open_api
from central.cli.jobs.list_command import without_object
from central.cli.jobs.scheduler_view import DEFAULT, use_of_default
from central.cli.top import cluster_view, screen
from central.cli.top.cluster_view import ClusterView
from central.cli.top.screen import ScreenState
from central.model.json_types import Json
from central.server.grpc import query_client

if TYPE_CHECKING:
    from protos.stubs import fleet_pb2 as pb

STYLE = re.compile(r"\x1b\[[0-9;]*m")
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
        source.close()
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
    """Asks for what is shown. Kubernetes' objects are read with the user's kubeconfig."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._where = scheduler_access.scheduler_address(args)
        self._args = args
        self._api: Api | None = None

    def close(self) -> None:
        """Closes the connection to the API server. No question may follow."""
        if self._api is not None:
            self._api.close()

    def view(self) -> ClusterView:
        """Raises CannotAsk."""
        reply = self._topology()
        groups, queues, notes = self._objects()
        if DEFAULT not in {queue["metadata"]["name"] for queue in queues}:
            queues.append(without_object(use_of_default(reply)))
        return ClusterView(
            cluster_view.racks_of(reply),
            cluster_view.queues_of(queues, groups),
            cluster_view.pending_of(groups),
            datetime.now().astimezone(),
            notes,
        )

    def _topology(self) -> "pb.TopologyReply":
        try:
            return query_client.topology(self._where, "")
        except query_client.CannotAsk as error:
            self._where = scheduler_access.renewed(self._args, error)
        return query_client.topology(self._where, "")

    def _objects(self) -> tuple[list[Json], list[Json], tuple[str, ...]]:
        notes: list[str] = []
        found: list[list[Json]] = []
        for kind in (GROUPS, QUEUES):
            try:
                if self._api is None:
                    self._api = open_api(self._args.kubeconfig, self._args.context, None)
                found.append(self._api.all(kind, everywhere=True))
            except CannotDo as error:
                notes.append(f"no {kind.plural}: {error}")
                found.append([])
        return found[0], found[1], tuple(dict.fromkeys(notes))

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
            if typed in CODES:
                return [CODES[typed]]
            return [CODES.get(bytes([byte]), chr(byte)) for byte in typed if byte != 0x1B]
    return []


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
