"""A rank that makes the others wait, in real PyTorch processes that train together: it is named and replaced, and they
are not, though each step takes all of them equally long.

Design: docs/design/training.md"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.train import torch_training
from tests.agent.train.test_hangs import LAUNCH
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


@pytest.mark.parametrize(
    ("where", "launcher"),
    [("loader", []), pytest.param("step", [], marks=pytest.mark.nightly), ("step", LAUNCH)],
    ids=str,
)
def test_the_rank_that_makes_others_wait_is_named_and_replaced(
    stack: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    launcher: list[str],
) -> None:
    """Its pod is to be replaced; when another one is there, none is slow, and the others have lived on."""
    torch_training.need_current(monkeypatch)
    launcher = [*launcher, torch_training.python()] if launcher else []
    folder = tmp_path / "elastic"
    training = Training(stack, folder, [3], launcher, guarded(script()), "--replace-slow=1")

    def start(name: str, member: int, **more: str) -> None:
        more |= {"OMP_NUM_THREADS": "1", "LOCKSTEP_NODE": f"n{member}"}
        environment = training.coordinator.environment(member, **more)
        training.team.start(name, environment, "100000", "240", "0")

    def status() -> Any:
        return training.coordinator.get("/v1/status")

    for member in range(3):
        start(f"m{member}", member, **({"SLOW": where} if member == 1 else {}))
    found: dict[str, Any] = {}

    def replaced() -> bool:
        found.update(status())
        return bool(found["replaced"])

    wait_for(replaced, training.story)
    assert (found["replaced"], found["slow"]["members"]) == (["uid-1"], [1])
    assert "(member 1) on node n1" in found["slow"]["why"]
    assert [one["member"] for one in found["members"] if one["straggler"]] == [1]
    assert found["size"] == 3, "it trains until its pod is deleted"
    training.team.running["m1"].terminate()
    training.team.ended("m1")
    start("m1-again", 1, LOCKSTEP_POD_UID="uid-9")

    def even() -> bool:
        now = status()
        steps = [one["step"] for one in now["members"]]
        return now["live"] > found["live"] and len(steps) == 3 and min(steps) > found["step"]

    furthest = max(one["step"] for one in found["members"])
    found["step"] = furthest
    wait_for(even, training.story)
    wait_for(lambda: status()["slow"] == {"why": "", "members": []}, training.story)
    assert all(training.team.running[name].poll() is None for name in ("m0", "m2"))
