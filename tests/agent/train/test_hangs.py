"""Ranks that live and take no step, in real PyTorch processes: which one is the cause, what it does, and its
replacement. A healthy job that saves or evaluates for longer than a step may take is no such case.

Design: docs/design/training.md"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.train.generation_lease import CUT_OFF
from tests.agent.train import torch_training
from tests.agent.train.test_lost_members import guarded
from tests.agent.train.test_torch_resize import TORCHRUN, Training
from tests.agent.train.workers import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS, BATCH, HANG_S = 60, 240, 4
LAUNCH = ["-m", "lockstep_train.launch", "--nproc=1", "--stop-wait=1", "--"]
LOADER = """
def loader(sampler):
    for number, ids in enumerate(sampler):
        if number == 20:
            hang("loader")
        yield ids

def hang(where):
    if os.environ.get("HANG") == where:
        threading.Event().wait()

"""


def script() -> str:
    """Of which a process with the variable HANG stops in its loader or within its twentieth step."""
    text = torch_training.SCRIPT.replace("import json,", "import threading, json,")
    text = text.replace("def write(path):", LOADER + "def write(path):")
    text = text.replace("order.steps(world)", "order.steps(world, loader)")
    return text.replace(
        "        optimizer.zero", "        if step == 20: hang('step')\n        optimizer.zero"
    )


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_training.need_current(monkeypatch)


class Hanging(Training):
    """Three members, of which number 1 stands still at `where`; a fourth one waits."""

    def begin(self, where: str) -> None:
        for member in range(3):
            self.start_member(member, **({"HANG": where} if member == 1 else {}))

    def start_member(self, member: int, **more: str) -> None:
        environment = self.coordinator.environment(member, OMP_NUM_THREADS="1", **more)
        self.team.start(f"m{member}", environment, str(STEPS), str(BATCH), "0.05")

    def finish_others(self) -> None:
        for name in ("m0", "m2"):
            assert self.team.ended(name) == 0, self.story()
        assert len({one["pid"] for one in self.team.said("m1")}) == 1

    def standstill(self) -> Any:
        """The coordinator's conclusion; waits for it."""
        found: list[Any] = []

        def concluded() -> bool:
            found[:] = [self.coordinator.get("/v1/status")["standstill"]]
            return bool(found[0])

        wait_for(concluded, self.story)
        return found[0]


def hanging(stack: ExitStack, folder: Path, launcher: list[str], *flags: str) -> Hanging:
    flags = (f"--hang-after={HANG_S}", *flags)
    return Hanging(stack, folder / "elastic", [3], launcher, guarded(script()), *flags)


WAYS = [("process", "loader"), ("launch", "step")]
MORE = [("process", "step"), ("launch", "loader"), ("torchrun", "step"), ("torchrun", "loader")]


@pytest.mark.parametrize(
    ("way", "where"), [*WAYS, *(pytest.param(*each, marks=pytest.mark.nightly) for each in MORE)]
)
def test_the_rank_that_stands_still_is_named(
    stack: ExitStack, tmp_path: Path, way: str, where: str
) -> None:
    """The others wait in a collective for it."""
    launch = [*LAUNCH, torch_training.python()]
    launcher = {"process": [], "launch": launch, "torchrun": TORCHRUN}[way]
    training = hanging(stack, tmp_path, launcher)
    training.begin(where)
    found = training.standstill()
    assert found["members"] == [1], found
    (rank,) = (each for each in found["ranks"] if each["member"] == 1)
    doing = "waits for its loader" if where == "loader" else "is within a step"
    assert rank["phase"] == doing
    assert rank["waits_in"] == ""
    assert "script.py" in rank["stack"]
    assert rank["stack"].splitlines()[-1].endswith(" wait")
    others = [each for each in found["ranks"] if each["member"] != 1]
    assert len(others) == 2
    assert all(each["waits_in"].startswith("all_reduce ") for each in others), others
    assert all(each["entered"] > rank["entered"] for each in others), found
    assert f"rank {rank['rank']} (member 1) {doing}" in found["why"]
    status = training.coordinator.get("/v1/status")
    assert len(status["members"]) == 3, "the policy is to warn"


def test_a_rank_that_stands_still_is_replaced(stack: ExitStack, tmp_path: Path) -> None:
    """The others go on in their processes, and the member starts again."""
    training = hanging(stack, tmp_path, [], "--on-hang=replace")
    training.begin("loader")
    training.reaches(20, 2)
    assert training.team.ended("m1") == CUT_OFF, training.story()
    assert "the other members took this process for lost" in training.team.errors("m1")
    failure = training.coordinator.get("/v1/status")["failures"][-1]
    assert (failure["member"], failure["code"]) == (1, CUT_OFF)
    assert "waits for its loader" in failure["message"]
    training.finish_others()


@pytest.mark.nightly
def test_a_launcher_of_a_rank_that_stands_still_is_replaced(
    stack: ExitStack, tmp_path: Path
) -> None:
    launcher = [*LAUNCH, torch_training.python()]
    training = hanging(stack, tmp_path, launcher, "--on-hang=replace")
    training.begin("step")
    training.reaches(1, 2)
    assert training.team.ended("m1") == CUT_OFF, training.story()
    training.finish_others()


# It evaluates after a step on all ranks, saves on rank 0 while the others wait in a collective, and evaluates on rank 1
# within a step, which it says.
HEALTHY = (
    torch_training.SCRIPT.replace("order.steps(world)", "order.steps(world, iter)")
    .replace(
        "        optimizer.zero_grad()",
        "        if step == 40 and world.rank == 1:\n"
        "            with job.busy():\n"
        "                time.sleep(14)\n"
        "        optimizer.zero_grad()",
    )
    .replace(
        "        if step % 50 == 0",
        "        if step == 20:\n            time.sleep(14)\n        if step % 50 == 0",
    )
    .replace("def write(path):", "def write(path):\n    time.sleep(14)")
)


@pytest.mark.parametrize("way", [pytest.param("process", marks=pytest.mark.nightly), "launch"])
def test_a_slow_job_is_not_called_hung(stack: ExitStack, tmp_path: Path, way: str) -> None:
    launcher = [*LAUNCH, torch_training.python()] if way == "launch" else []
    flags = ("--hang-after=6", "--on-hang=replace")
    training = Training(stack, tmp_path / "elastic", [2], launcher, guarded(HEALTHY), *flags)
    training.start(STEPS, BATCH, 0.0)
    seen = set()

    def ended() -> bool:
        seen.add(bool(training.coordinator.get("/v1/status")["standstill"]))
        return all(one.poll() is not None for one in training.team.running.values())

    wait_for(ended, training.story)
    training.finish()
    assert seen == {False}
    assert {one["generation"] for one in training.lines()} == {1}
