"""Steps of processes under lockstep-launch and torchrun, as their coordinator knows them: with real processes.

Design: docs/design/coordinator.md"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.train import torch_training
from tests.agent.train.coordinators import RunningCoordinator, coordinator
from tests.agent.train.workers import Workers, wait_for, workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
LAUNCH = ["-m", "lockstep_train.launch", "--stop-wait=10"]
# A training with the library. It is done when there is the file "end".
WITH_ORDER = """
import pathlib, sys, time
import lockstep_train as lt
order = lt.Order(2000, batch=10, epochs=1000)
for world in lt.join().worlds():
    for step, batch in order.steps(world):
        time.sleep(0.02)
        if world.over(step) or pathlib.Path(sys.argv[1]).exists():
            break
"""
# One that says its steps, and knows nothing else of us.
WITH_PROGRESS = """
import pathlib, sys, time
import lockstep_train as lt
step = 0
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
    step += 1
    lt.progress(step, records=step * 5)
"""
# Any other program.
WITHOUT_US = """
import subprocess, sys
shell = 'n=0; until [ -e "$1" ]; do sleep 0.05; n=$((n+1)); echo $n > "$LOCKSTEP_STEP_FILE"; done'
sys.exit(subprocess.call(["sh", "-c", shell, "sh", sys.argv[1]]))
"""


class Launched:
    """Launchers of members, and what their coordinator knows."""

    def __init__(self, running: RunningCoordinator, made: Workers, end: Path) -> None:
        self.running, self.made, self._end = running, made, end

    def start(self, member: int, *launcher: str) -> None:
        self.made.launcher = [*launcher, self.made.python]
        self.made.start(f"m{member}", self.running.environment(member), str(self._end))

    def knows(self, member: int, size: int, step: int) -> dict[str, Any]:
        """What is known of the member in a generation of that size, as soon as it has taken that many steps."""
        found: list[dict[str, Any]] = []

        def known() -> bool:
            status = self.running.get("/v1/status")
            found[:] = [each for each in status["members"] if each["member"] == member]
            return status["size"] == size and bool(found) and found[0]["step"] >= step

        wait_for(known, lambda: f"{found} {self.made.errors(f'm{member}')}", 60.0)
        return found[0]

    def end(self) -> None:
        self._end.touch()
        for name in self.made.running:
            assert self.made.ended(name) == 0, self.made.errors(name)


def launched(folder: Path, script: str, *flags: str) -> Iterator[Launched]:
    with coordinator(folder, *flags) as running, workers(folder / "team", script) as made:
        yield Launched(running, made, folder / "end")


def test_steps_and_speed_of_processes_that_use_order(tmp_path: Path) -> None:
    for team in launched(tmp_path, WITH_ORDER, "--most=2", "--linger=60"):
        team.start(0, *LAUNCH, "--nproc=2", "--")
        found = team.knows(0, 1, team.knows(0, 1, 20)["step"] + 1)
        assert found["rank"] == 0
        assert found["step_s"] > 0.02
        records_per_s = team.running.get("/v1/status")["samples_per_s"]
        assert 0 < records_per_s <= 10 / 0.02, "of both processes: their batch is 10 records"
        assert records_per_s > 1.2 * 5 / found["step_s"], "one process has half of them"
        team.start(1, *LAUNCH, "--nproc=2", "--")
        for member in (0, 1):
            assert team.knows(member, 2, 10)["rank"] == member
        team.end()


@pytest.mark.parametrize("script", [WITH_PROGRESS, WITHOUT_US], ids=["progress", "echo"])
def test_steps_of_scripts_that_know_nothing_of_worlds(tmp_path: Path, script: str) -> None:
    for team in launched(tmp_path, script, "--most=1", "--linger=60"):
        team.start(0, *LAUNCH, "--")
        first = team.knows(0, 1, 5)
        later = team.knows(0, 1, first["step"] + 1)
        assert later["step_s"] > 0.01
        knows_records = script == WITH_PROGRESS
        assert (team.running.get("/v1/status")["samples_per_s"] > 0) == knows_records
        team.end()


def test_a_program_that_says_nothing_has_no_steps(tmp_path: Path) -> None:
    script = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists():\n time.sleep(0.05)"
    for team in launched(tmp_path, script, "--most=1", "--linger=60"):
        team.start(0, *LAUNCH, "--")
        assert team.knows(0, 1, -1)["step"] == -1
        team.end()


def test_steps_of_torchruns_workers(tmp_path: Path) -> None:
    torch_training.need_torchrun()
    with (
        coordinator(tmp_path, "--most=1", "--linger=60") as running,
        workers(tmp_path / "team", WITH_PROGRESS, torch_training.python()) as made,
    ):
        made.launcher = ["-m", "lockstep_train.torchrun", "--nnodes=1:2", "--nproc_per_node=2"]
        made.launcher += ["--monitor_interval=0.5"]
        team = Launched(running, made, tmp_path / "end")
        made.start("m0", running.environment(0), str(tmp_path / "end"))
        first = team.knows(0, 1, 5)
        assert team.knows(0, 1, first["step"] + 1)["rank"] == 0
        team.end()


# next_rendezvous() as torchrun's agent calls it, for a PyTorch whose torchrun does not start here.
AGENT = f"""
import json, subprocess, sys
from lockstep_train import torchrun
handler = torchrun.create(type("Parameters", (), {{"run_id": "r"}}))
handler.next_rendezvous()
child = subprocess.Popen([sys.executable, "-c", {json.dumps(WITH_PROGRESS)}, sys.argv[1]])
sys.exit(child.wait())
"""


def test_steps_of_the_rendezvous_backend(tmp_path: Path) -> None:
    with (
        coordinator(tmp_path, "--most=1", "--linger=60") as running,
        workers(tmp_path / "team", AGENT, torch_training.python()) as made,
    ):
        team = Launched(running, made, tmp_path / "end")
        made.start("m0", running.environment(0), str(tmp_path / "end"))
        assert team.knows(0, 1, 5)["rank"] == 0
        (tmp_path / "end").touch()
        assert made.ended("m0") == 0, made.errors("m0")
