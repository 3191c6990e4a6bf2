"""A rank that makes the others wait, in real PyTorch processes that train together: it is marked, and they are not,
though each step takes all of them equally long.

Design: docs/design/training.md"""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.train import torch_training
from tests.agent.train.test_lost_members import guarded
from tests.agent.train.test_torch_resize import Training
from tests.agent.train.workers import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SLOW = """
def slow(where):
    if os.environ.get("SLOW") == where:
        time.sleep(0.5)

def loader(sampler):
    for ids in sampler:
        slow("loader")
        yield ids

"""


def script() -> str:
    text = torch_training.SCRIPT.replace("def write(path):", SLOW + "def write(path):")
    text = text.replace("order.steps(world)", "order.steps(world, loader)")
    return text.replace("        loss = torch", "        slow('step')\n        loss = torch")


@pytest.mark.parametrize("where", ["loader", "step"])
def test_the_rank_that_makes_others_wait_is_marked(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    torch_training.need_current(monkeypatch)
    training = Training(stack, tmp_path / "elastic", [3], [], guarded(script()))
    for member in range(3):
        slow = {"SLOW": where} if member == 1 else {}
        environment = training.coordinator.environment(member, OMP_NUM_THREADS="1", **slow)
        training.team.start(f"m{member}", environment, "100000", "240", "0")

    def marked() -> bool:
        members = training.coordinator.get("/v1/status")["members"]
        return [one["member"] for one in members if one["straggler"]] == [1]

    wait_for(marked, training.story)
