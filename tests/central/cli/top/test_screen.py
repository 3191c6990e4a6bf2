"""The screen of `lockstep top`: keys, orders, and lines that fit any terminal."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.cli.top import cluster_view, screen
from central.cli.top.cluster_view import ClusterView
from central.cli.top.screen import ScreenState
from protos.stubs import fleet_pb2 as pb
from tests.central.server.test_query_service import queue_row

Json = dict[str, Any]
OLDEST, OLD, NEW = "2025-01-01T00:00:00+00:00", 1767225600.0, 1767312000.0


def gang(name: str, queue: str, created: float = OLD, why: str = "", place: int | None = 1) -> Json:
    row = {"namespace": "team", "gang": name, "name": name, "queue": queue, "place": place}
    return {**row, "minimum": len(name), "created": created, "reason": why}


def topology() -> pb.TopologyReply:
    reply = pb.TopologyReply(levels=["zone", "rack"])
    for name, rack, used in (("n1", "r1", 8), ("n2", "r1", 2), ("n3", "r2", 0)):
        count = pb.GpuCount(gpus=8, used=used, free=8 - used)
        node = reply.nodes.add(name=name, domains=["", rack], count=count)
        if used:
            node.holders.add(namespace="team", pod=f"{name}-p", job=f"j{used}", gpus=range(used))
    reply.nodes[2].topology.gpus.add(index=0, healthy=False)
    return reply


@pytest.fixture
def view() -> ClusterView:
    gangs = [
        gang("late", "a", NEW, "needs 8 GPUs"),
        gang("early", "b", OLD),
        gang("grows", "a", place=None),
    ]
    queues = [
        {**queue_row("b", 0.5, inqueue=1), "capability": {"nvidia.com/gpu": 4.0}},
        queue_row("a", 10.0, running=1, pending=1),
    ]
    jobs = [
        {"queue": "a", "gpus": 6.0, "gpu_use": {"utilization": 0.5, "idle_s": None}},
        {"queue": "a", "gpus": 2.0, "gpu_use": {"utilization": 0.0, "idle_s": 60.0}},
        {"queue": "a", "gpus": 2.0, "gpu_use": None},
        {"queue": "b", "gpus": 0.5, "gpu_use": {"utilization": None, "idle_s": None}},
    ]
    return ClusterView(
        cluster_view.racks_of(topology()),
        cluster_view.queues_of(queues, jobs),
        cluster_view.pending_of(gangs),
        at=datetime(2026, 1, 3, tzinfo=UTC),
    )


def text(state: ScreenState, view: ClusterView, width: int = 100, height: int = 24) -> str:
    return "\n".join(screen.draw(state, view, width, height, style=screen.plain))


def names(state: ScreenState, view: ClusterView) -> list[str]:
    return [row.name for row in screen.rows(state, view)]


def test_racks_have_sums_owners_and_troubles(view: ClusterView) -> None:
    shown = text(ScreenState(), view)
    assert "3 nodes, 24 GPUs, 10 used, 14 free, 1 unhealthy; 2 pending" in shown
    assert "r1    2      16    10    6     ##########......  -        team/j8, team/j2" in shown
    assert "r2    1      8     0     8     ................  1        -" in shown


def test_keys_change_the_view_and_the_order(view: ClusterView) -> None:
    state = ScreenState()
    assert names(state, view) == ["r1", "r2"]
    screen.press(state, "s", view)
    assert (state.sort(), names(state, view)) == ("free", ["r2", "r1"])
    screen.press(state, "r", view)
    assert names(state, view) == ["r1", "r2"]
    screen.press(state, "tab", view)
    assert (state.tab, names(state, view)) == ("queues", ["a", "b"])
    screen.press(state, "3", view)
    assert names(state, view) == ["early", "late"]
    screen.press(state, "s", view)  # by size
    assert names(state, view) == ["early", "late"]
    screen.press(state, "s", view)  # by queue
    assert names(state, view) == ["late", "early"]


def test_queues_show_what_runs_and_waits(view: ClusterView) -> None:
    shown = text(ScreenState(tab="queues"), view)
    assert [line.split() for line in shown.splitlines() if line.startswith(("a ", "b "))] == [
        ["a", "10", "38%", "2", "-", "-", "1", "1", "Open"],
        ["b", "0.5", "-", "-", "-", "4", "0", "1", "Open"],
    ]


def test_enter_asks_for_an_explanation_that_scrolls_and_closes(view: ClusterView) -> None:
    state = ScreenState(tab="pending")
    screen.press(state, "down", view)
    screen.press(state, "enter", view)
    assert state.explain == ("team", "late")
    state.text = "\n".join(f"line {at}" for at in range(50))
    screen.press(state, "down", view)
    assert text(state, view).startswith("line 1\n")
    for _ in range(99):
        screen.press(state, "down", view)
    assert "line 49\n" in text(state, view)
    screen.press(state, "escape", view)
    assert "early" in text(state, view)
    screen.press(state, "q", view)
    assert state.quit


def test_the_chosen_row_stays_on_the_screen() -> None:
    gangs = [gang(f"g{at:03}", "a") for at in range(500)]
    view = ClusterView(pending=cluster_view.pending_of(gangs))
    state = ScreenState(tab="pending")
    for _ in range(60):
        screen.press(state, "pagedown", view)
        chosen = screen.rows(state, view)[state.row].name
        assert chosen in text(state, view, 80, 12)
    assert state.row == 499
    few = ClusterView(pending=view.pending[:3])  # the others have started
    assert "g002" in text(state, few, 80, 12)


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    evil = gang("g", "a", why="\x1b]0;owned\x07\x1b[2Jgone\nnext")
    view = ClusterView(pending=cluster_view.pending_of([evil]), notes=("\x1b[31mnote",))
    lines = screen.draw(ScreenState(tab="pending"), view, 80, 10, style=screen.coloured)
    assert "?]0;owned??[2Jgone?next" in "".join(lines)
    assert "\x1b]" not in "".join(lines)
    assert "\x1b[2J" not in "".join(lines)


@given(
    width=st.integers(1, 200),
    height=st.integers(6, 60),
    keys=st.lists(
        st.sampled_from(["up", "down", "s", "r", "tab", "1", "2", "3", "enter", "escape", "x"])
    ),
)
def test_it_fits_every_terminal(width: int, height: int, keys: list[str]) -> None:
    gangs = [gang(f"g{at}", "a", why="because " * 20) for at in range(30)]
    view = ClusterView(
        cluster_view.racks_of(topology()),
        cluster_view.queues_of([]),
        cluster_view.pending_of(gangs),
    )
    state = ScreenState()
    for key in keys:
        screen.press(state, key, view)
        lines = screen.draw(state, view, width, height, style=screen.plain)
        assert len(lines) == height
        assert max(map(len, lines)) <= width


def test_enter_opens_the_gang_that_was_highlighted(view: ClusterView) -> None:
    """The list may have changed since it was drawn."""
    state = ScreenState(tab="pending")
    text(state, view)
    _, second = names(state, view)
    fewer = replace(view, pending=tuple(gang for gang in view.pending if gang.name == second))
    screen.press(state, "enter", fewer)
    assert state.explain is None
    text(state, fewer)
    screen.press(state, "enter", fewer)
    assert state.explain == ("team", second)


def test_the_highlight_follows_its_gang(view: ClusterView) -> None:
    state = ScreenState(tab="pending")
    text(state, view)
    screen.press(state, "down", view)
    _, second = names(state, view)
    newcomer = replace(view.pending[0], name="newcomer", gang="newcomer", created=OLDEST)
    more = replace(view, pending=(newcomer, *view.pending))
    text(state, more)
    assert (names(state, more)[0], state.row) == ("newcomer", 2)
    screen.press(state, "up", more)
    screen.press(state, "enter", more)
    assert state.explain != ("team", second)
    assert state.explain == ("team", names(state, more)[1])


def test_the_highlight_of_the_first_row_stays_at_the_top(view: ClusterView) -> None:
    state = ScreenState(tab="pending")
    text(state, view)
    newcomer = replace(view.pending[0], name="newcomer", gang="newcomer", created=OLDEST)
    more = replace(view, pending=(newcomer, *view.pending))
    text(state, more)
    screen.press(state, "enter", more)
    assert state.explain == ("team", "newcomer")


def test_a_long_name_leaves_room_for_the_reason() -> None:
    gangs = [gang("g" * 60, "a", why="needs 8 GPUs in one rack")]
    view = ClusterView(pending=cluster_view.pending_of(gangs))
    state = ScreenState(tab="pending")
    assert "needs 8 GPUs in one rack" in text(state, view, 80)
    assert "g…  a" in text(state, view, 80)
    assert "g" * 60 in text(state, view, 120)
    narrow = text(state, view, 30).splitlines()[4]
    assert narrow.index("…") == screen.NAME_LEAST - 1


def test_without_colours_the_chosen_row_is_seen(view: ClusterView) -> None:
    def lines(style: Callable[[str, str], str]) -> str:
        state = ScreenState(tab="pending")
        return "\n".join(screen.draw(state, view, 80, 12, style=style, note="no answer"))

    assert f"{screen.REVERSE}team/early" in lines(screen.monochrome)
    assert screen.RED not in lines(screen.monochrome)
    assert f"{screen.RED}no answer" in lines(screen.coloured)
    assert "\x1b" not in lines(screen.plain)
    assert all(line == line.rstrip() for line in lines(screen.plain).splitlines())
