"""A member that is lost while all ranks save, in real PyTorch processes of any version: the others go on in their
processes from the last whole step, and end.

Design: docs/design/training.md"""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.train import torch_training
from tests.agent.train.test_lost_members import SILENT_S, guarded
from tests.agent.train.test_torch_resize import Training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS, BATCH = 60, 240
WRITERS = """
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
pool, groups = ThreadPoolExecutor(1), []

def at_once(path):
    Path(path, str(world.rank)).write_text("state")

def in_a_collective(path):
    #Rank 1 waits for rank 0, which lives and keeps the connection
    groups.append(dist.new_group(backend="gloo"))
    def writes():
        if world.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if world.rank == 1:
            dist.recv(torch.zeros(1), src=0, group=groups[0])
    return pool.submit(writes)

def without_end(path):
    if world.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return Future()

def write(path):
"""
SAVES = """        if step == 20:
            job.save(step, at_once, data=order.state(), together=True)
        if step == 40 and world.generation == 1:
            job.save(step, WRITER, data=order.state(), together=True)
            job.checkpoints.wait()
        if stop:
            break
"""


def script(writer: str, *, waits: bool) -> str:
    text = torch_training.SCRIPT.replace("\ndef write(path):\n", WRITERS)
    before, _, rest = text.partition("        if step % 50 == 0")
    after = rest.partition("            break\n")[2]
    saves = SAVES.replace("WRITER", writer)
    return (
        before
        + (saves if waits else saves.replace("            job.checkpoints.wait()\n", ""))
        + after
    )


@pytest.mark.parametrize("writer", ["in_a_collective", "without_end"])
@pytest.mark.parametrize(
    "waits",
    [
        pytest.param(False, id="trains on"),
        pytest.param(True, id="waits for it", marks=pytest.mark.nightly),
    ],
)
def test_the_save_is_given_up(
    stack: ExitStack, tmp_path: Path, writer: str, *, waits: bool
) -> None:
    text = guarded(script(writer, waits=waits))
    made = Training(stack, tmp_path / "elastic", [3], [], text, f"--silent={SILENT_S}")
    made.start(STEPS, BATCH, 0.02)
    made.reaches(STEPS, 2)
    codes = sorted(made.team.ended(name) for name in made.team.running)
    assert codes == [-9, 0, 0], made.story()
    assert len({one["pid"] for one in made.lines()}) == 3, "no process was started again"
    assert made.coordinator.get("/v1/checkpoint/latest")["name"] == "ckpt-20-1"
