"""Tasks with real worker processes and a real coordinator over HTTPS; both are killed."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.train.coordinators import RunningCoordinator, coordinator
from tests.agent.train.workers import Workers, wait_for, workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# Prints [member, epoch, records of a task] when a task is done and counted. With a fourth argument it stops for ever
# after so many records of its first task, and says so.
WORKER = """
import json, os, sys, time
import lockstep_train as lt
takes_s, epochs, options = float(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
queue = lt.Tasks.range(120, 3, seed=4, **options)
print(json.dumps(["ready"]), flush=True)
for task in queue.epochs(epochs):
    records = list(task.records())
    for count in range(1, len(records) + 1):
        time.sleep(takes_s)
        task.upto(task.resume + count)
        if sys.argv[4:] == [str(count)]:
            print(json.dumps(["stopped"]), flush=True)
            time.sleep(600)
    if task.done(result=os.environ["LOCKSTEP_MEMBER"]):
        line = [int(os.environ["LOCKSTEP_MEMBER"]), task.epoch, records, list(task.items)]
        print(json.dumps(line), flush=True)
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningCoordinator]:
    store = f"--store=file:{tmp_path}/q.db"
    with coordinator(tmp_path, store, "--silent=4", "--linger=60", secure=True) as made:
        yield made


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path / "team", WORKER) as made:
        yield made


def start(
    team: Workers,
    running: RunningCoordinator,
    member: int,
    takes_s: float = 0.01,
    *,
    epochs: int = 2,
    options: str = "{}",
    stops_after: int | None = None,
) -> None:
    """takes_s: of each record."""
    more = [] if stops_after is None else [str(stops_after)]
    team.start(f"w{member}", running.environment(member), str(takes_s), str(epochs), options, *more)


def finished(team: Workers) -> list[list[Any]]:
    return [line for line in team.said() if line not in (["ready"], ["stopped"])]


def tasks_of(lines: list[list[Any]], epoch: int) -> Counter[int]:
    """How often each task was counted as done, by its first record."""
    return Counter(items[0] for _, each, _, items in lines if each == epoch)


EACH_ONCE = Counter(range(0, 120, 3))


def test_workers_share_the_epochs(running: RunningCoordinator, team: Workers) -> None:
    for member in range(3):
        start(team, running, member)
    assert [team.ended(f"w{member}") for member in range(3)] == [0, 0, 0]
    lines = finished(team)
    assert [tasks_of(lines, epoch) for epoch in (0, 1)] == [EACH_ONCE, EACH_ONCE]
    assert {member for member, *_ in lines} == {0, 1, 2}
    results = running.get("/v1/results?queue=tasks&epoch=1")["results"]
    assert [each["task"] for each in results] == list(range(40))
    counted = {items[0] // 3: str(member) for member, epoch, _, items in lines if epoch == 1}
    assert {each["task"]: each["result"] for each in results} == counted
    wait_for(lambda: running.get("/v1/status")["over"], "the Job is over when all work is done")


def test_a_killed_worker_gives_its_task_to_another(
    running: RunningCoordinator, team: Workers
) -> None:
    start(team, running, 0, 0.4, epochs=1)
    start(team, running, 1, 0.4, epochs=1)
    wait_for(lambda: len(finished(team)) >= 2, lambda: team.errors("w0"))
    held = running.get("/v1/epoch?queue=tasks")
    assert held["leased"] == 2
    team.kill("w0")
    killed_s = time.monotonic()
    team.kill("w1", signal.SIGTERM)  # and one that is told to end: it finishes the task that it has
    assert team.ended("w1") == 143
    start(team, running, 2, 0.001, epochs=1)
    assert team.ended("w2") == 0
    assert time.monotonic() - killed_s < 45, "the lease of 60 s was waited for"
    lines = finished(team)
    assert tasks_of(lines, 0) == EACH_ONCE
    assert not running.get("/v1/epoch?queue=tasks")["failed"]


def test_the_next_owner_starts_after_what_was_done(
    running: RunningCoordinator, team: Workers
) -> None:
    start(team, running, 0, 0.001, epochs=1, stops_after=2)
    wait_for(lambda: ["stopped"] in team.said(), lambda: team.errors("w0"))
    time.sleep(2.0)  # what is done is sent a few times per second
    team.kill("w0")
    start(team, running, 0, 0.001, epochs=1)
    assert team.ended("w0") == 0
    lengths = Counter(len(records) for _, _, records, _ in finished(team))
    assert lengths == {3: 39, 1: 1}


def test_the_coordinator_is_killed(running: RunningCoordinator, team: Workers) -> None:
    for member in range(3):
        start(team, running, member, 0.02, epochs=2)
    for done in (8, 24, 48):
        wait_for(lambda done=done: len(finished(team)) > done, lambda: team.errors("w0"))  # type: ignore[misc]
        running.kill()
        time.sleep(0.5)
        running.start()
    assert [team.ended(f"w{member}") for member in range(3)] == [0, 0, 0]
    lines = finished(team)
    # An answer may be lost with the coordinator that gave it: then the next one gives it again.
    assert [tasks_of(lines, epoch) for epoch in (0, 1)] == [EACH_ONCE, EACH_ONCE]


def test_a_coordinator_without_its_state(tmp_path: Path, team: Workers) -> None:
    with coordinator(tmp_path, "--silent=4") as running:
        start(team, running, 0, 0.02, epochs=1)
        wait_for(lambda: len(finished(team)) > 4, lambda: team.errors("w0"))
        running.kill()
        running.start()
        assert team.ended("w0") == 0, team.errors("w0")
        assert set(tasks_of(finished(team), 0)) == set(EACH_ONCE), "at least once"


def test_a_task_that_takes_too_long_is_another_ones(
    running: RunningCoordinator, team: Workers
) -> None:
    """`timeout_s` ends the renewals; the lease of 60 s is then left to the coordinator's clock."""
    start(team, running, 0, 30.0, epochs=1, options='{"timeout_s": 0.5}')
    wait_for(lambda: "longer than its timeout" in team.errors("w0"), lambda: team.errors("w0"))


def test_all_processes_name_the_same_tasks(running: RunningCoordinator, team: Workers) -> None:
    start(team, running, 0, 0.2, epochs=1)
    wait_for(lambda: team.said() == [["ready"]], lambda: team.errors("w0"))
    start(team, running, 1, 0.2, epochs=1, options='{"failures": 5}')
    assert team.ended("w1") == 1
    assert "tasks exists with other tasks or settings" in team.errors("w1")


def test_lost_and_back(running: RunningCoordinator, team: Workers) -> None:
    """A worker that stands still for longer than `--silent` loses its task, and then goes on."""
    start(team, running, 0, 0.3, epochs=1)
    start(team, running, 1, 0.02, epochs=1)
    wait_for(lambda: len(finished(team)) > 4, lambda: team.errors("w0"))
    team.kill("w0", signal.SIGSTOP)
    assert team.ended("w1") == 0
    team.kill("w0", signal.SIGCONT)
    assert team.ended("w0") == 0, team.errors("w0")
    assert tasks_of(finished(team), 0) == EACH_ONCE
