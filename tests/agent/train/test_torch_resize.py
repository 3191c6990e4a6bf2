"""PyTorch with gloo at 2, 6 and 3 workers: the same steps, records and losses as at a fixed size (experiment 16.9 of
the elastic training specification, without a cluster).

Design: docs/design/training.md"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.train import torch_training
from tests.agent.train.coordinators import RunningCoordinator, coordinator
from tests.agent.train.workers import Workers, wait_for, workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
WITHIN_S = 120.0


class Training:
    """Members that train by the plan of a file. A member waits until the plan has it."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        sizes: list[int],
        launcher: list[str],
        script: str = torch_training.SCRIPT,
        *more: str,
    ) -> None:
        folder.mkdir()
        self.plan = folder / "plan.json"
        self.resize(range(sizes[0]))
        flags = ("--plan", str(self.plan), "--linger=60", *more)
        self.coordinator: RunningCoordinator = stack.enter_context(coordinator(folder, *flags))
        self.team: Workers = stack.enter_context(
            workers(folder / "team", script, torch_training.python())
        )
        self.team.launcher = launcher
        self.most = max(sizes)

    def start(self, steps: int, batch: int, pause_s: float) -> None:
        for member in range(self.most):
            environment = self.coordinator.environment(member, OMP_NUM_THREADS="1")
            arguments = (str(steps), str(batch), str(pause_s))
            self.team.start(f"m{member}", environment, *arguments)

    def resize(self, members: Iterable[int]) -> float:
        """When it was decided, in seconds since 1970."""
        new = self.plan.with_suffix(".new")
        new.write_text(json.dumps({"members": list(members), "leave_in_s": 60, "least": 1}))
        new.rename(self.plan)
        return time.time()

    def lines(self) -> list[dict[str, Any]]:
        return self.team.said()

    def reaches(self, step: int, size: int) -> float:
        """When a step from that number on was taken first at that size."""
        found: list[float] = []

        def reached() -> bool:
            found[:] = [
                one["at"]
                for one in self.lines()
                if (one["size"], one["step"] >= step) == (size, True)
            ]
            return bool(found)

        wait_for(reached, self.story, WITHIN_S)
        return min(found)

    def story(self) -> str:
        tails = [f"{name}: {self.team.errors(name)[-1500:]}" for name in self.team.running]
        return "\n".join([*tails, self.coordinator.log()[-2000:]])

    def finish(self) -> None:
        wait_for(
            lambda: all(one.poll() is not None for one in self.team.running.values()),
            self.story,
            WITHIN_S,
        )
        assert {name: one.poll() for name, one in self.team.running.items()} == dict.fromkeys(
            self.team.running, 0
        ), self.story()


class Curve:
    """What all ranks of a training said, by step."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        every: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for line in lines:
            every[line["step"]].append(line)
        self.steps = sorted(every)
        self.ids = {step: sorted(i for one in every[step] for i in one["ids"]) for step in every}
        self.losses = {step: {one["loss"] for one in every[step]} for step in every}
        self.sizes = {
            step: {(one["generation"], one["size"]) for one in every[step]} for step in every
        }
        self.ranks = {step: len(every[step]) for step in every}

    def is_whole(self, steps: int) -> None:
        """No gap, no repeat: each step was taken in one generation, once on each of its ranks."""
        assert self.steps == list(range(1, steps + 1))
        for step in self.steps:
            ((_, size),) = self.sizes[step]
            assert self.ranks[step] == size, f"step {step}"
            assert len(self.losses[step]) == 1, f"step {step}: ranks disagree"

    def size_changes(self) -> list[int]:
        order = [next(iter(self.sizes[step]))[1] for step in self.steps]
        return [size for at, size in enumerate(order) if at == 0 or order[at - 1] != size]

    def equals(self, other: "Curve", within: float = 1e-6) -> float:
        """The greatest relative difference of a loss."""
        assert self.ids == other.ids
        worst = 0.0
        for step in self.steps:
            (mine,), (others,) = self.losses[step], other.losses[step]
            worst = max(worst, abs(mine - others) / others)
        assert worst <= within
        return worst


def fixed(stack: ExitStack, folder: Path, steps: int, batch: int) -> Curve:
    made = Training(stack, folder, [3], [])
    made.start(steps, batch, 0.0)
    made.finish()
    curve = Curve(made.lines())
    curve.is_whole(steps)
    assert curve.size_changes() == [3]
    return curve


@pytest.mark.parametrize("batch", [240, pytest.param(256, marks=pytest.mark.nightly)])
def test_two_six_three_in_the_same_processes(stack: ExitStack, tmp_path: Path, batch: int) -> None:
    steps = 400 if batch == 240 else 200
    training = Training(stack, tmp_path / "elastic", [2, 6, 3], [])
    training.start(steps, batch, 0.03)
    training.reaches(20, 2)
    decided = training.resize(range(6))
    grown_s = training.reaches(1, 6) - decided
    training.reaches(steps // 4, 6)
    decided = training.resize(range(3))
    shrunk_s = training.reaches(1, 3) - decided
    training.finish()
    curve = Curve(training.lines())
    curve.is_whole(steps)
    assert curve.size_changes() == [2, 6, 3]
    pids: dict[str, set[int]] = {
        name: {one["pid"] for one in training.team.said(name)} for name in training.team.running
    }
    assert all(len(each) == 1 for each in pids.values()), "a process started again"
    worst = curve.equals(fixed(stack, tmp_path / "fixed", steps, batch))
    print(
        f"batch {batch}: {grown_s:.1f} s to the first step of six, {shrunk_s:.1f} s to that of three; "
        f"losses differ by {worst:.1e} at most"
    )


def test_a_killed_worker_costs_the_steps_since_the_checkpoint(
    stack: ExitStack, tmp_path: Path
) -> None:
    """Under lockstep-launch: the others start again from the checkpoint, and the killed one comes back."""
    steps, batch = 200, 240
    launcher = ["-m", "lockstep_train.launch", "--stop-wait=20", "--", torch_training.python()]
    training = Training(stack, tmp_path / "elastic", [2], launcher)
    training.start(steps, batch, 0.03)
    training.reaches(70, 2)
    training.team.kill("m1")  # the launcher; its child follows, as in a container
    for line in training.team.said("m1")[-1:]:
        training.team.end_process(line["pid"])
    environment = training.coordinator.environment(1, OMP_NUM_THREADS="1")
    training.team.start("m1", environment, str(steps), str(batch), "0.03")
    training.finish()
    twice = Curve(training.lines())
    assert twice.steps == list(range(1, steps + 1))
    again = [step for step in twice.steps if len(twice.sizes[step]) > 1]
    assert 0 < len(again) <= 50 + 2, "steps since the last checkpoint are done again, no others"
    final: dict[int, int] = {
        step: max(number for number, _ in twice.sizes[step]) for step in twice.steps
    }
    towards_the_model = [one for one in training.lines() if one["generation"] == final[one["step"]]]
    curve = Curve(towards_the_model)
    curve.is_whole(steps)
    worst = curve.equals(fixed(stack, tmp_path / "fixed", steps, batch))
    print(f"{len(again)} steps twice; losses differ by {worst:.1e} at most")


def test_torchrun_counts_no_restart_for_a_change_of_size(stack: ExitStack, tmp_path: Path) -> None:
    """`--max-restarts=0` and sizes 2, 3 and 2: a counted restart would end torchrun."""
    torch_training.need_torchrun()
    steps, batch = 300, 240
    launcher = ["-m", "lockstep_train.torchrun", "--nnodes=1:6", "--nproc_per_node=1"]
    launcher += ["--max_restarts=0", "--monitor_interval=0.5"]
    training = Training(stack, tmp_path / "elastic", [2, 3], launcher)
    training.start(steps, batch, 0.05)
    training.reaches(20, 2)
    decided = training.resize(range(3))
    grown_s = training.reaches(1, 3) - decided
    decided = training.resize(range(2))
    wait_for(lambda: training.team.running["m2"].poll() is not None, training.story, WITHIN_S)
    after = max(one["step"] for one in training.lines())
    shrunk_s = training.reaches(after + 1, 2) - decided
    training.finish()
    curve = Curve(training.lines())
    curve.is_whole(steps)
    assert curve.size_changes() == [2, 3, 2]
    worst = curve.equals(fixed(stack, tmp_path / "fixed", steps, batch))
    print(
        f"torchrun: {grown_s:.1f} s to the first step of three, {shrunk_s:.1f} s to that of two; "
        f"losses differ by {worst:.1e} at most"
    )


LAUNCH = ["-m", "lockstep_train.launch", "--stop-wait=3", "--", torch_training.SELF]
TORCHRUN = ["-m", "lockstep_train.torchrun", "--nnodes=1:6", "--nproc_per_node=1"]
TORCHRUN += ["--max_restarts=0", "--monitor_interval=0.5"]
SLOW_SAVE = torch_training.SCRIPT.replace(
    "def write(path):",
    "def write(path):\n    time.sleep(float(os.environ['SAVE_S']) if stop else 0)",
)


@pytest.mark.parametrize(
    ("launcher", "save_s"),
    [
        pytest.param(LAUNCH, "8", id="launch"),
        pytest.param(TORCHRUN, "34", id="torchrun", marks=pytest.mark.nightly),
    ],
)
def test_a_save_under_way_is_not_killed(
    stack: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launcher: list[str],
    save_s: str,
) -> None:
    """It takes longer than processes have to stop: three seconds here, thirty under torchrun. No step is repeated."""
    monkeypatch.setenv("SAVE_S", save_s)
    if launcher is TORCHRUN:
        torch_training.need_torchrun()
    launcher = [
        torch_training.python() if each == torch_training.SELF else each for each in launcher
    ]
    training = Training(stack, tmp_path / "elastic", [2, 3], launcher, SLOW_SAVE)
    training.start(90, 240, 0.05)
    training.reaches(20, 2)
    training.resize(range(3))
    training.reaches(1, 3)
    training.finish()
    curve = Curve(training.lines())
    curve.is_whole(90)
    assert curve.size_changes() == [2, 3]
