"""Replicas of two ranks that divide a model among them (HSDP), in real PyTorch processes: a lost rank takes its replica
out of the mean, and the processes of all others live on.

Design: docs/design/training.md"""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.train import torch_training
from tests.agent.train.test_lost_members import BATCH, alone, counted, guarded
from tests.agent.train.test_sharded import ELASTIC
from tests.agent.train.test_torch_resize import Training
from tests.agent.train.workers import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS, SHARDS = 300, 2

# Rests after each step until four replicas train. `state` is the same for equal parts.
SCRIPT = (
    ELASTIC.replace(
        'mesh=init_device_mesh("cpu", (world.size,))', "mesh=lt.torch.mesh(world, shard=2)"
    )
    .replace(
        '"pid": os.getpid(),',
        '"pid": os.getpid(), "shard": world.rank % 2, "state": state(model, optimizer),',
    )
    .replace("time.sleep(pause_s)", "time.sleep(0 if world.replicas == 4 else pause_s)")
    .replace(
        "if step % 50 == 0 or stop:",
        "lt.torch.keep(job, step, model, optimizer, schedule, order)\n        if step % 50 == 0:",
    )
    .replace(
        "for world in job.worlds():",
        """
def state(model, optimizer):
    found = []
    for each in model.parameters():
        found += [each, *optimizer.state[each].values()]
    return str([each.to_local().tolist() for each in found if each is not None])

for world in job.worlds():""",
    )
)


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_training.need_current(monkeypatch)


class Replicas:
    """Three replicas of two ranks that train, and a fourth one that waits for a plan."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.training = Training(
            stack,
            folder / "elastic",
            [6, 8],
            [],
            guarded(SCRIPT),
            f"--replica={SHARDS}",
            "--answer=4",
        )
        self.team = self.training.team
        for member in range(8):
            self.start(member)

    def start(self, member: int) -> None:
        environment = self.training.coordinator.environment(member, OMP_NUM_THREADS="1")
        self.team.start(f"m{member}", environment, str(STEPS), str(BATCH), "0.3")

    def pids(self, member: int) -> set[int]:
        return {one["pid"] for one in self.team.said(f"m{member}")}

    def loses(self, member: int, how: signal.Signals, size: int) -> float:
        """The longest time without a step, until the next size trains."""
        self.team.running[f"m{member}"].send_signal(how)
        before = max(one["generation"] for one in self.training.lines())
        after: list[float] = []

        def goes_on() -> bool:
            later = [one for one in self.training.lines() if one["generation"] > before]
            after[:] = [one["at"] for one in later if one["size"] == size]
            return bool(after)

        wait_for(goes_on, self.training.story)
        last: list[float] = [
            one["at"] for one in self.training.lines() if one["generation"] <= before
        ]
        return min(after) - max(last)


def test_a_lost_rank_takes_its_replica_out_and_nobody_else(
    stack: ExitStack, tmp_path: Path
) -> None:
    undisturbed = alone(tmp_path, ELASTIC, STEPS)
    story = Replicas(stack, tmp_path)
    story.training.reaches(10, 6)
    killed_s = story.loses(1, signal.SIGKILL, 4)
    story.training.resize(range(8))
    at = max(one["step"] for one in story.training.lines())
    story.training.reaches(at + 2, 6)
    frozen_s = story.loses(3, signal.SIGSTOP, 4)
    for member in (1, 3):
        story.team.kill(f"m{member}")
        story.start(member)
    story.training.reaches(1, 8)
    for name in story.team.running:
        assert story.team.ended(name) == 0, story.training.story()
    lines = story.training.lines()
    curve, again = counted(lines, undisturbed.ids, STEPS)
    worst = curve.equals(undisturbed)
    print(f"killed: {killed_s:.1f} s, frozen: {frozen_s:.1f} s without a step")
    print(f"{len(again)} steps twice, losses: {worst:.1e}, sizes {curve.size_changes()}")
    assert len(again) <= 2, "one for each loss"
    assert [len(story.pids(member)) for member in range(8)] == [1, 2, 1, 2, 1, 1, 1, 1]
    parts = {(one["generation"], one["step"], one["shard"]) for one in lines}
    equal = {(one["generation"], one["step"], one["shard"], one["state"]) for one in lines}
    assert len(parts) == len(equal), "replicas differ"
