"""Members that are lost without a plan, in real PyTorch processes: the others live on, in the same processes, from the
last whole step.

Design: docs/design/training.md"""

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.train import torch_training
from tests.agent.train.test_sharded import ELASTIC
from tests.agent.train.test_torch_resize import Curve, Training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SILENT_S = 8
STEPS, BATCH = 150, 240


def guarded(script: str) -> str:
    """The script with the body of its turn in `with world:`."""
    before, loop, body = script.partition("for world in job.worlds():\n")
    inside = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    return before + loop + "    with world:\n" + inside


def _stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _unsaid(lines: list[dict[str, Any]], ids: dict[int, list[int]]) -> list[dict[str, Any]]:
    """The lines that were not printed of the last step before a loss. The lost member can die behind the step's last
    collective of gradients, and another one learns of that before it prints: the step is whole if one has all of it."""
    found = []
    for number in {one["generation"] for one in lines}:
        taken = [one for one in lines if one["generation"] == number]
        last = [one for one in taken if one["step"] == max(each["step"] for each in taken)]
        said = {record for one in last for record in one["ids"]}
        missing = [record for record in ids[last[0]["step"]] if record not in said]
        lacking = last[0]["size"] - len(last)
        found += [last[0] | {"ids": missing[at::lacking]} for at in range(lacking)]
    return found


def counted(
    lines: list[dict[str, Any]], ids: dict[int, list[int]], steps: int
) -> tuple[Curve, list[int]]:
    """What counts towards the model, and the steps that were done again. `ids` holds each step's records."""
    every = Curve(lines)
    final = {step: max(number for number, _ in every.sizes[step]) for step in every.steps}
    again = [step for step in every.steps if len(every.sizes[step]) > 1]
    last = [one for one in lines if one["generation"] == final[one["step"]]]
    curve = Curve([*last, *_unsaid(last, ids)])
    curve.is_whole(steps)
    return curve, again


def alone(folder: Path, script: str, steps: int = STEPS) -> Curve:
    with ExitStack() as made:
        training = Training(made, folder / "alone", [1], [], script)
        training.start(steps, BATCH, 0.0)
        training.finish()
        return Curve(training.lines())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Curve:
    return alone(tmp_path_factory.mktemp("all"), torch_training.SCRIPT)


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_training.need_current(monkeypatch)


class Story:
    """Three members of which one is lost, and a fourth one that takes its place when the two others have gone on, or
    as a spare."""

    def __init__(self, stack: ExitStack, folder: Path, script: str, spares: int = 0) -> None:
        flags = (f"--silent={SILENT_S}", f"--spares={spares}")
        sizes = [4] if spares else [3, 4]
        self.training = Training(stack, folder / "elastic", sizes, [], guarded(script), *flags)
        self.hurries_at = "1" if spares else "3"
        self.team = self.training.team
        for member in range(4):
            self._start(member)

    def _start(self, member: int) -> None:
        """It rests after each step, but not at one size."""
        environment = self.training.coordinator.environment(member, OMP_NUM_THREADS="1")
        self.team.start(f"m{member}", environment, str(STEPS), str(BATCH), "0.2", self.hurries_at)

    def pids(self, size: int = 0) -> set[int]:
        return {one["pid"] for one in self.training.lines() if size in (0, one["size"])}

    def replace(self, *lost: int) -> None:
        self.training.resize([member for member in range(4) if member not in lost])

    def finish(self, *lost: int) -> None:
        for member in lost:
            self.team.kill(f"m{member}")
        for name in self.team.running.keys() - {f"m{member}" for member in lost}:
            assert self.team.ended(name) == 0, self.training.story()

    def counted(self, ids: dict[int, list[int]]) -> tuple[Curve, list[int]]:
        return counted(self.training.lines(), ids, STEPS)


@pytest.mark.parametrize(
    ("how", "lost"),
    [
        pytest.param(signal.SIGSTOP, 0, marks=pytest.mark.nightly),
        (signal.SIGKILL, 0),
        pytest.param(signal.SIGKILL, 2, marks=pytest.mark.nightly),
    ],
)
def test_the_others_go_on_in_their_processes(
    stack: ExitStack, tmp_path: Path, undisturbed: Curve, how: signal.Signals, lost: int
) -> None:
    story = Story(stack, tmp_path, torch_training.SCRIPT)
    story.training.reaches(20, 3)
    story.team.running[f"m{lost}"].send_signal(how)
    at = time.time()
    after_s = story.training.reaches(1, 2) - at
    story.replace(lost)
    story.finish(lost)
    curve, again = story.counted(undisturbed.ids)
    assert len(again) <= 1, again
    assert curve.size_changes() == [3, 2, 3]
    assert len(story.pids()) == 4, "no process was started again"
    assert story.pids(2) < story.pids(3)
    worst = curve.equals(undisturbed)
    print(f"{how.name} of {lost}: {after_s:.1f} s, {len(again)} steps twice, losses: {worst:.1e}")


def test_a_spare_takes_the_place_of_a_lost_member(
    stack: ExitStack, tmp_path: Path, undisturbed: Curve
) -> None:
    """It has started and joined before, so the others are never fewer than three."""
    story = Story(stack, tmp_path, torch_training.SCRIPT, spares=1)
    story.training.reaches(20, 3)
    status = story.training.coordinator.get("/v1/status")
    trains = {one["member"] for one in status["members"]}
    (spare,) = set(status["present"]) - trains
    story.finish(max(trains))
    curve, again = story.counted(undisturbed.ids)
    assert len(again) <= 1, again
    assert curve.size_changes() == [3]
    assert len(story.pids()) == 4, "no process was started again"
    assert {one["generation"] for one in story.team.said(f"m{spare}")} == {2}
    curve.equals(undisturbed)


def _stops_behind(line: str) -> str:
    """The script with a rank that stops behind this line of step 60, in the first generation."""
    return torch_training.SCRIPT.replace(
        line,
        f"{line}        if (world.rank, world.size, step, world.generation) == (2, 3, 60, 1):\n"
        "            os.kill(os.getpid(), 19)\n",
    )


def _story_of_a_stop(stack: ExitStack, folder: Path, line: str) -> Story:
    """A member that stops behind this line of step 60 is replaced when the others have gone on. Each state has the
    whole time for itself: starts take most of it."""
    story = Story(stack, folder, _stops_behind(line))
    story.training.reaches(59, 3)
    story.training.reaches(60, 2)
    running = story.team.running
    (stopped,) = (each for each in range(3) if _stands_still(running[f"m{each}"].pid))
    story.replace(stopped)
    story.finish(stopped)
    return story


def test_a_member_that_stops_within_a_step_costs_this_step(
    stack: ExitStack, tmp_path: Path, undisturbed: Curve
) -> None:
    """The others have taken a part of the step: they return to the step before, and two of them do this one again."""
    story = _story_of_a_stop(stack, tmp_path, "        optimizer.step()\n")
    curve, again = story.counted(undisturbed.ids)
    assert again == [], "no rank had ended it"
    assert {size for _, size in curve.sizes[60]} == {2}
    assert curve.size_changes() == [3, 2, 3]
    assert len(story.pids()) == 4
    curve.equals(undisturbed)


@pytest.mark.nightly
def test_a_member_that_stops_behind_its_last_collective_costs_nothing(
    stack: ExitStack, tmp_path: Path, undisturbed: Curve
) -> None:
    """The others have all of the step; only the line of the lost one is missing."""
    story = _story_of_a_stop(stack, tmp_path, "        dist.all_reduce(whole)\n")
    curve, again = story.counted(undisturbed.ids)
    assert again == []
    assert {size for _, size in curve.sizes[60]} == {3}
    assert curve.size_changes() == [3, 2, 3]
    curve.equals(undisturbed)


KEPT = ELASTIC.replace(
    "        if step % 50 == 0 or stop:\n",
    "        lt.torch.keep(job, step, model, optimizer, schedule, order)\n        if step % 50 == 0 or stop:\n",
)


@pytest.mark.parametrize(
    ("script", "lost", "bounds"),
    [
        pytest.param(ELASTIC, (1,), (30, 50), id="storage", marks=pytest.mark.nightly),
        pytest.param(KEPT, (1,), (0, 2), id="memory"),
        pytest.param(KEPT, (1, 2), (30, 50), id="the peer as well", marks=pytest.mark.nightly),
    ],
)
def test_a_lost_part_of_a_divided_state(
    stack: ExitStack, tmp_path: Path, script: str, lost: tuple[int, ...], bounds: tuple[int, int]
) -> None:
    """The processes live on, from the last checkpoint, or from the copies that others have in memory."""
    undisturbed = alone(tmp_path, ELASTIC)
    story = Story(stack, tmp_path, script)
    story.training.reaches(85, 3)
    for member in lost:
        story.team.kill(f"m{member}")
    at, size = time.time(), 3 - len(lost)
    after_s = story.training.reaches(1, size) - at
    story.replace(*lost)
    story.finish(*lost)
    curve, again = story.counted(undisturbed.ids)
    print(f"{after_s:.1f} s without a step, {len(again)} steps twice")
    assert bounds[0] <= len(again) <= bounds[1]
    assert len(story.pids()) == 4, "no process was started again"
    assert curve.size_changes()[-3:] == [3, size, 4 - len(lost)]
    curve.equals(undisturbed)
