"""A constructed day gives exact GPU-hours: allocated, kept idle by reservations, and lost to evictions."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import BindDone, BindFailed, EvictDone, Fact, PodGone, PodSeen, QueueSeen
from central.model.resources import GPU_UNITS
from central.scheduler.cycle import schedule_once
from central.server.grpc.usage_query import KEYS
from central.server.history.allocations import HELD, AllocationLog
from central.server.history.history_store import HistoryStore
from central.server.history.usage_report import AllocationReports
from protos.stubs import fleet_pb2 as pb
from tests.central import factories

T0 = 1_700_000_000.0
HOUR = 3600.0
MIB = 1 << 20


class History:
    """A scheduler whose bindings succeed in the same second, and the history of its cycles."""

    def __init__(self, file: Path) -> None:
        self.scheduler = new_scheduler(factories.LEVELS, reserve_after_s=0.0, reserve_idle=1.0)
        self.file = file
        self.log = AllocationLog(self.scheduler)
        self.store = HistoryStore(str(file), 64 * MIB, lambda: T0)
        self.pods: dict[str, PodSeen] = {}

    def cycle(self, now: float, *facts: Fact, fail: Sequence[str] = (), saved: bool = True) -> None:
        self.pods.update((fact.uid, fact) for fact in facts if isinstance(fact, PodSeen))
        decisions = schedule_once(self.scheduler, facts, now)
        self.log.observe(facts, decisions)
        after: list[Fact] = []
        for bind in decisions:
            if isinstance(bind, Bind) and bind.pod in fail:
                after.append(BindFailed(bind.pod, bind.node, "refused", final=True))
            elif isinstance(bind, Bind):
                pod = replace(self.pods[bind.pod], node=bind.node, phase="Running", started=now)
                self.pods[bind.pod] = pod
                after += [BindDone(bind.pod, bind.node), pod]
        if after:
            self.log.observe(after, schedule_once(self.scheduler, after, now))
        if saved:
            self.store.record(self.log.take(), now)

    def ended(self, now: float, *names: str) -> None:
        pods = [replace(self.pods[f"uid-{name}"], phase="Succeeded") for name in names]
        self.cycle(now, *pods)

    def look(self) -> None:
        """What the recorder's thread asks when the process begins."""
        steps = self.log.steps(self.scheduler)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self.store.end_all_but(end.value)
                break
        self.store.record(self.log.take(), self.scheduler.state.now)

    def report(
        self, *keys: str, since: float = T0, until: float = T0 + 24 * HOUR, sees: str = ""
    ) -> pb.UsageReply:
        def visible(namespace: str) -> bool:
            return sees in ("", namespace)

        return AllocationReports(self.store).usage(keys or ("queue",), since, until, visible)

    def hours(self, *keys: str, **span: float) -> dict[tuple[str, ...], tuple[float, float, float]]:
        found = self.report(*keys, **span)  # type: ignore[arg-type]  # since and until
        return {tuple(row.keys): (row.allocated, row.held, row.lost) for row in found.rows}


def _busy(row: pb.UsageRow) -> float | None:
    return row.busy if row.HasField("busy") else None


@pytest.fixture
def day(tmp_path: Path) -> History:
    made = History(tmp_path / "history.db")
    nodes: list[Fact] = [
        factories.node("n0"), factories.report("n0"),
        factories.node("n1"), factories.report("n1", factories.topology(8, model="H100")),
    ]  # fmt: skip
    made.cycle(T0, QueueSeen("a"), QueueSeen("b"), *nodes)
    return made


def pod(name: str, gpus: int, queue: str = "a", **other: object) -> PodSeen:
    return factories.pod(name, gpus, queue=queue, **other)  # type: ignore[arg-type]  # a test's shorthand


def test_use_by_queue_as_far_as_it_is_known(day: History) -> None:
    day.cycle(T0 + HOUR, pod("one", 8), pod("two", 2), pod("three", 2, "b"))
    unit = GPU_UNITS * HOUR * 1000
    day.store.add_use([(2 * unit, 8 * unit, "uid-one"), (2 * unit, 2 * unit, "uid-two")])
    day.ended(T0 + 3 * HOUR, "one")
    day.store.add_use([(9.0, 9.0, "uid-one"), (9.0, 9.0, "uid-nobody")])  # too late, or unknown
    found = {tuple(row.keys): _busy(row) for row in day.report("job").rows}
    assert found == {("one",): 0.25, ("two",): 1.0, ("three",): None}
    by_queue = {
        tuple(row.keys): _busy(row) for row in day.report("queue", until=T0 + 3 * HOUR).rows
    }
    # one: 8 hours are rated of two that it ran; two is open: of its hours until today hardly any are in the span
    assert by_queue[("b",)] is None
    assert by_queue[("a",)] == pytest.approx(0.25, abs=0.01)


def test_a_file_of_another_format_is_kept_and_a_new_one_begins(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    History(file).store.close()
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("PRAGMA user_version = 1")
    again = HistoryStore(str(file), 64 * MIB, lambda: T0)
    assert AllocationReports(again).usage(("job",), T0, T0 + HOUR, lambda _: True).rows == []
    again.close()
    assert [each.name for each in tmp_path.glob("*.corrupt-*")] == [f"history.db.corrupt-{T0:.0f}"]


def test_hours_by_queue_and_every_other_key(day: History) -> None:
    day.cycle(T0 + HOUR, pod("one", 8), pod("two", 3, "b", service_account="ann"))
    day.ended(T0 + 3 * HOUR, "one")
    day.cycle(T0 + 4 * HOUR + 1.5, PodGone("uid-two"))
    two = 3 * (3 + 1.5 / HOUR)
    assert day.hours("queue") == {("a",): (16.0, 0, 0), ("b",): (two, 0, 0)}
    assert day.hours("user") == {("default",): (16.0, 0, 0), ("ann",): (two, 0, 0)}
    assert day.hours("namespace") == {("ns",): (16.0 + two, 0, 0)}
    assert day.hours("job", "queue") == {("one", "a"): (16.0, 0, 0), ("two", "b"): (two, 0, 0)}
    assert sum(hours for hours, *_ in day.hours("model").values()) == 16.0 + two
    assert set(day.hours("model")) == {("test",), ("H100",)}
    rows = day.hours(*KEYS)
    assert {key[:4] for key in rows} == {("a", "ns", "default", "one"), ("b", "ns", "ann", "two")}


def test_only_the_part_inside_the_span_counts(day: History) -> None:
    day.cycle(T0 + HOUR, pod("one", 8))
    inside = {"since": T0 + 2 * HOUR, "until": T0 + 2.5 * HOUR}
    assert day.hours(**inside) == {("a",): (4.0, 0, 0)}  # it has not ended
    day.ended(T0 + 2.25 * HOUR, "one")
    assert day.hours(**inside) == {("a",): (2.0, 0, 0)}
    assert day.hours(since=T0 + 3 * HOUR) == {}
    assert day.hours(until=T0 + HOUR) == {}


def test_shares_count_in_hundredths(day: History) -> None:
    day.cycle(
        T0,
        factories.node("s", shares=True),
        factories.report("s", factories.topology(8, shares=True)),
    )
    day.cycle(T0 + HOUR, factories.part("small", 25, queue="b"))
    day.ended(T0 + 2 * HOUR, "small")
    assert day.hours() == {("b",): (0.25, 0, 0)}


def test_work_since_the_last_checkpoint_is_lost_to_an_eviction(day: History) -> None:
    day.cycle(T0, pod("low", 8), pod("other", 8))
    saved = replace(day.pods["uid-low"], checkpoint=T0 + 1.5 * HOUR)
    other = replace(day.pods["uid-other"], checkpoint=T0 + 1.9 * HOUR)
    day.cycle(T0 + 1.6 * HOUR, saved, other)
    day.cycle(T0 + 2 * HOUR, pod("urgent", 8, priority=10))
    victim = next(uid for uid in ("uid-low", "uid-other") if day.scheduler.state.pods[uid].evicting)
    since_saved = 0.5 if victim == "uid-low" else 0.1
    day.cycle(T0 + 2.25 * HOUR, PodGone(victim))  # its grace period: lost, too
    lost = day.hours(until=T0 + 2.25 * HOUR)[("a",)]
    assert lost[0] == 2 * 8 * 2.25
    assert lost[2] == pytest.approx(8 * (since_saved + 0.25))
    with day.store.readable() as db:
        assert db.execute("SELECT DISTINCT cause FROM allocations ORDER BY cause").fetchall() == [
            ("",),
            ("preemption",),
        ]


def test_an_eviction_that_is_refused_loses_nothing(day: History) -> None:
    day.cycle(T0, pod("low", 8), pod("other", 8))
    day.cycle(T0 + HOUR, pod("urgent", 8, priority=10))
    victim = next(uid for uid in ("uid-low", "uid-other") if day.scheduler.state.pods[uid].evicting)
    day.cycle(T0 + HOUR + 1, EvictDone(victim, "a disruption budget"), PodGone("uid-urgent"))
    day.ended(T0 + 2 * HOUR, "low", "other")
    assert day.hours() == {("a",): (32.0, 0, 0)}


def test_reservations_keep_gpus_idle(day: History) -> None:
    """A gang of 16 waits for the second node until the first pod ends; the first node is free and kept for it."""
    day.cycle(T0, pod("long", 8, runs_for_s=4 * HOUR))
    giant: list[Fact] = [
        factories.gang("giant", 2, queue="a"),
        *(pod(f"giant-{i}", 8, gang="giant") for i in (0, 1)),
    ]
    day.cycle(T0 + HOUR, *giant)
    assert day.log.open["held:ns/giant"].units == 8 * GPU_UNITS
    day.ended(T0 + 4 * HOUR, "long")
    day.ended(T0 + 5 * HOUR, "giant-0", "giant-1")
    # The gang keeps 8 GPUs idle for 3 hours, and has 16 for one.
    assert day.hours("job") == {("giant",): (16.0, 24.0, 0), ("long",): (32.0, 0, 0)}


def test_a_pod_and_a_gang_of_its_name_keep_gpus_idle(day: History) -> None:
    """They have an allocation each, and the end of one leaves the other."""
    more: list[Fact] = [factories.node("n2"), factories.report("n2")]
    day.cycle(T0, QueueSeen("c"), *more, *(pod(f"long{i}", 5, "c") for i in (0, 1, 2)))
    members = [pod(f"giant-{i}", 8, gang="giant") for i in (0, 1)]
    day.cycle(T0 + 10, factories.gang("giant", 2, queue="a"), *members)
    day.cycle(T0 + 20, pod("giant", 8, "b"))
    held = {uid: one.units for uid, one in day.log.open.items() if one.kind == HELD}
    assert held == {"held:ns/giant": 6 * GPU_UNITS, "held:ns/giant (pod)": 3 * GPU_UNITS}
    day.cycle(T0 + 30, PodGone("uid-giant"))
    assert [uid for uid, one in day.log.open.items() if one.kind == HELD] == ["held:ns/giant"]
    day.cycle(T0 + 40, *(PodGone(one.uid) for one in members))
    assert not any(one.kind == HELD for one in day.log.open.values())


def test_a_binding_that_fails_ends_the_allocation(day: History) -> None:
    day.cycle(T0 + HOUR, pod("one", 8), fail=("uid-one",))
    day.cycle(T0 + 2 * HOUR, PodGone("uid-one"))
    assert sum(hours for hours, *_ in day.hours().values()) == 0


def test_a_restart_counts_nothing_twice_and_misses_nothing(day: History, tmp_path: Path) -> None:
    day.cycle(T0 + HOUR, pod("stays", 8), pod("leaves", 4))
    day.cycle(T0 + 2 * HOUR)  # the last time that the file knows
    day.store.close()  # killed; what it had committed stays
    again = History(day.file)
    stays = day.pods["uid-stays"]
    again.cycle(
        T0 + 3 * HOUR, QueueSeen("a"), factories.node("n0"), factories.report("n0"),
        factories.node("n1"), factories.report("n1"), stays, saved=False,
    )  # fmt: skip
    again.look()
    again.ended(T0 + 4 * HOUR, "stays")
    assert again.hours("job") == {("stays",): (24.0, 0, 0), ("leaves",): (4.0, 0, 0)}


def test_running_pods_count_from_their_start_where_the_history_is_new(tmp_path: Path) -> None:
    made = History(tmp_path / "history.db")
    running = pod("one", 8, node="n0", phase="Running", started=T0 - HOUR)
    schedule_once(made.scheduler, [factories.node("n0"), factories.report("n0"), running], T0)
    made.look()
    assert made.hours(since=T0 - 2 * HOUR, until=T0) == {("a",): (8.0, 0, 0)}


def test_the_model_is_learnt_from_a_later_report(tmp_path: Path) -> None:
    made = History(tmp_path / "history.db")
    made.cycle(T0, factories.node("n0"), factories.report("n0", factories.topology(8, model="")))
    made.cycle(T0 + 1, pod("one", 8, "default"))
    assert set(made.hours("model")) == {("unknown",)}
    made.cycle(T0 + 2, factories.report("n0", factories.topology(8, model="H200"), generation=2))
    assert set(made.hours("model")) == {("H200",)}


def test_what_the_viewer_may_not_see_is_left_out(day: History) -> None:
    day.cycle(T0, pod("one", 8))
    day.cycle(T0, replace(pod("two", 8), namespace="secret"))
    report = day.report("queue", until=T0 + HOUR, sees="ns")
    assert [(tuple(row.keys), row.allocated) for row in report.rows] == [(("a",), 8.0)]
    assert report.hidden
    assert not day.report("queue", until=T0 + HOUR).hidden


def test_a_week_of_the_largest_cluster_has_exact_sums(tmp_path: Path) -> None:
    """40,000 GPUs for 90 days, to the millisecond: no sum overflows or rounds."""
    made = History(tmp_path / "history.db")
    days_s = 90 * 24 * HOUR
    rows = [
        (
            f"u{i}",
            "allocated",
            "ns",
            "q",
            "u",
            "j",
            "m",
            8400 * 8,
            0,
            round(days_s * 1000),
            "",
            None,
            0.0,
            0.0,
        )
        for i in range(5000)
    ]
    with closing(sqlite3.connect(made.file)) as db, db:
        db.executemany(f"INSERT INTO allocations VALUES ({','.join('?' * 14)})", rows)
    (row,) = made.report(since=0.0, until=days_s).rows
    assert row.allocated == 40_000 * 90 * 24
