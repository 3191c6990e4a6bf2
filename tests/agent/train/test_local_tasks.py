"""Tasks and data() without a coordinator: one process."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent.train import OtherEpoch, Tasks, data, join
from agent.train.client import Unreachable
from agent.train.job import Job
from agent.train.lease_renewal import LeaseRenewal
from agent.train.local_tasks import LocalTasks
from agent.train.task_lease import QueueSettings, TaskLease, TaskList
from tests.agent.train.workers import wait_for

UNTYPED: Any = [7]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Job:
    for name in ("LOCKSTEP_COORDINATOR", "RANK", "WORLD_SIZE", "LOCKSTEP_CHECKPOINTS"):
        monkeypatch.delenv(name, raising=False)
    return join(tmp_path)


def test_each_record_of_each_epoch_once(job: Job) -> None:
    queue = Tasks.range(103, 10, seed=5, job=job)
    taken: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for task in queue.epochs(3):
        taken[task.epoch] += task.records()
        assert task.done(result=task.name)
    assert all(sorted(records) == list(range(103)) for records in taken.values())
    assert len({tuple(records) for records in taken.values()}) == 3, "the same order in each epoch"
    assert [each.result for each in queue.results(2)] == [each.name for each in queue.results(1)]
    assert (queue.status().done, queue.status().over) == (11, True)


def test_a_task_that_fails_is_tried_again_and_then_set_aside_by_name(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Tasks.of(["good", "bad", "better"], failures=2, job=job)
    tries = []
    for task in queue.epoch(0):
        tries.append(task.name)
        assert task.failed("torn file") if task.name == "bad" else task.done()
    assert sorted(tries) == ["bad", "bad", "bad", "better", "good"]
    (aside,) = queue.status().set_aside
    assert (aside.name, aside.why) == ("bad", "torn file")
    assert "task bad is set aside: torn file" in caplog.text
    assert "bad" in [task.name for task in queue.epoch(1) if task.done()], "it is back in the next"


def test_a_task_that_was_forgotten_counts_as_failed(job: Job) -> None:
    queue = Tasks.of(["a"], failures=0, job=job)
    assert [task.name for task in queue.epoch(0)] == ["a"]
    assert "before done() or failed()" in queue.status().set_aside[0].why


def test_leaving_the_loop_gives_the_task_back(job: Job) -> None:
    queue = Tasks.range(10, 5, failures=0, job=job)
    tasks = queue.epoch(0)
    task = next(tasks)
    task.upto(3)
    tasks.close()
    assert (queue.status().todo, queue.status().set_aside) == (2, ())
    resumed = {task.number: task.resume for task in queue.epoch(0) if task.done()}
    assert resumed[task.number] == 3


def test_leaving_the_loop_raises_nothing_while_the_coordinator_is_away(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is given back, and its lease is not renewed any more."""
    queue = Tasks.range(10, 5, job=job)
    tasks = queue.epoch(0)
    task = next(tasks)

    def renew(lease: TaskLease, upto: int) -> float | None:
        raise Unreachable("no answer")

    monkeypatch.setattr(queue._queue, "renew", renew)
    task.upto(3)
    tasks.close()
    assert task.ended
    assert queue.status().leased == 0


def test_done_after_the_end_of_the_lease_is_not_counted(job: Job) -> None:
    queue = Tasks.range(2, job=job)
    tasks = queue.epoch(0)
    first = next(tasks)
    queue.load({"epoch": 0, "tasks": 2, "done": []})
    assert first.done() is False
    assert queue.status().done == 0


def test_a_task_ends_once(job: Job) -> None:
    tasks = Tasks.range(2, job=job).epoch(0)
    task = next(tasks)
    task.done()
    with pytest.raises(RuntimeError, match="was called before"):
        task.failed("no")


def test_an_epoch_comes_after_the_one_before(job: Job) -> None:
    with pytest.raises(OtherEpoch, match="queue tasks is in epoch 0, not 1"):
        next(Tasks.range(2, job=job).epoch(1))


def test_files_are_read_by_one_loop(job: Job, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.rec").write_text(f"{number}a\n{number}b\n")
    (tmp_path / "2.rec").unlink()
    (tmp_path / "2.rec").mkdir()  # a bad one

    def lines(path: str) -> list[str]:
        return Path(path).read_text().split()

    taken = list(data(str(tmp_path / "*.rec"), lines, epochs=2, job=job))
    good = [f"{number}{letter}" for number in (0, 1, 3, 4) for letter in "ab"]
    assert sorted(taken) == sorted(2 * good)


def test_several_files_to_a_task(job: Job) -> None:
    queue = Tasks.files([f"/d/{n}" for n in range(5)], per_task=2, job=job)
    found = {task.name.split()[0]: task.items for task in queue.epoch(0) if task.done()}
    assert found == {"/d/0": ("/d/0", "/d/1"), "/d/2": ("/d/2", "/d/3"), "/d/4": ("/d/4",)}


def test_a_checkpoint_holds_what_is_done(job: Job, tmp_path: Path) -> None:
    """Killed between two tasks, with a checkpoint after each second one."""
    queue = Tasks.range(20, 2, job=job)
    before: list[int] = []
    for _ in job.worlds():
        for count, task in enumerate(queue.epochs(2), 1):
            task.done()
            if count % 2 == 0:
                before = [*before, task.number]
                job.save(count, lambda path: Path(path).write_text("w"), data=queue.state())
            if count == 13:
                break
    again = join(tmp_path)
    saved = again.latest()
    assert saved is not None
    assert saved.step == 12
    restored = Tasks.range(20, 2, job=again)
    restored.load(saved.data)
    assert [task.epoch for task in restored.epochs(2) if task.done()] == [1] * 8


class ShortLeases(LocalTasks):
    """Leases of 0.3 s, which end after three renewals."""

    renewed: ClassVar[list[int]] = []

    def renew(self, lease: TaskLease, upto: int) -> float | None:
        self.renewed.append(upto)
        return 0.3 if len(self.renewed) < 3 else None


def test_a_lease_is_renewed_until_it_is_lost() -> None:
    queue = ShortLeases(TaskList(names=("a",)), QueueSettings())
    renewal = LeaseRenewal(queue, TaskLease(0, "a", 0, 1, 0, 0.3), None)
    renewal.note(5)
    wait_for(lambda: renewal.lost, "three renewals")
    assert queue.renewed == [5, 5, 5]


class LongLeases(LocalTasks):
    def renew(self, lease: TaskLease, upto: int) -> float | None:
        return 600.0


@pytest.mark.parametrize(("timeout_s", "lost"), [(None, False), (600.0, False), (0.0, True)])
def test_a_task_that_takes_too_long_is_given_up(timeout_s: float | None, *, lost: bool) -> None:
    queue = LongLeases(TaskList(names=("a",)), QueueSettings())
    renewal = LeaseRenewal(queue, TaskLease(0, "a", 0, 1, 0, 0.0), timeout_s)
    wait_for(lambda: renewal.lost or not renewal._thread.is_alive() or not lost, "its end")
    renewal.close()
    renewal._thread.join(20)
    assert renewal.lost is lost


def test_what_an_earlier_owner_finished_stays_finished() -> None:
    queue = LongLeases(TaskList(names=("a",)), QueueSettings())
    renewal = LeaseRenewal(queue, TaskLease(0, "a", 0, 1, 7, 600.0), None)
    seen = [renewal.upto]
    for count in (5, 9, 8):
        renewal.note(count)
        seen.append(renewal.upto)
    renewal.close()
    assert seen == [7, 7, 9, 9]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda job: Tasks.range(0, job=job), "records=0: must be a whole number of at least 1"),
        (lambda job: Tasks.range(5, -1, job=job), "size=-1"),
        (lambda job: Tasks.range(True, job=job), "records=True"),
        (lambda job: Tasks.of([], job=job), "at least one task"),
        (lambda job: Tasks.of(["a", "b", "a"], job=job), 'names: "a" is given twice'),
        (lambda job: Tasks.files(["a", "a"], per_task=2, job=job), 'paths: "a" is given twice'),
        (lambda job: Tasks.of(["a\nb"], job=job), "names: 'a\\\\nb' is not a text"),
        (lambda job: Tasks.of(["a\0"], job=job), "printable"),
        (lambda job: Tasks.of(["x" * 10_240], job=job), "1 to 1024 printable"),
        (lambda job: Tasks.files(UNTYPED, job=job), "paths: 7 is not a text"),
        (lambda job: Tasks.files(["a"], per_task=0, job=job), "per_task=0"),
        (lambda job: Tasks.of(["a"], queue="", job=job), "queue: ''"),
        (lambda job: Tasks.of(["a"], commit="always", job=job), "commit='always'"),
        (lambda job: Tasks.of(["a"], failures=-1, job=job), "failures=-1"),
        (lambda job: Tasks.of(["a"], timeout_s=0, job=job), "timeout_s=0"),
        (lambda job: next(Tasks.of(["a"], job=job).epoch(-1)), "epoch=-1"),
        (
            lambda job: next(Tasks.of(["a"], job=job).epoch(0)).done(UNTYPED[0]),
            "result: must be a text",
        ),
        (lambda job: next(Tasks.of(["a"], job=job).epoch(0)).done("x" * 4097), "at most 4096"),
        (lambda job: next(data("s3://b/*.rec", job=job)), "only local paths"),
        (lambda job: next(data("/no/such/*.rec", job=job)), "no file has such a path"),
        (
            lambda job: Tasks.range(2, job=job).load({"tasks": 3}),
            "queue of 3 tasks, this one has 2",
        ),
        (
            lambda job: Tasks.range(2, job=job).load({"tasks": 2, "epoch": "x"}),
            "damaged: epoch='x'",
        ),
        (
            lambda job: Tasks.range(2, job=job).load({"tasks": 2, "epoch": 0, "done": [2]}),
            "damaged: done",
        ),
    ],
)
def test_bad_input_is_one_sentence(job: Job, make: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(job)  # type: ignore[operator]  # a lambda of the table
