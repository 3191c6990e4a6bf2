"""Parameter servers, trainers and the coordinator are killed at random, all of them at once too: every record of every
epoch is accounted for (experiment 16.4 of the elastic training specification, without a cluster)."""

import http.client
import json
import os
import random
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.agent.train.coordinators import RunningCoordinator, coordinator, free_port
from tests.agent.train.parameter_servers import EPOCHS, PER_TASK, RECORDS, SERVER, TRAINER
from tests.agent.train.workers import WITHIN_S, Workers, workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
TASKS = RECORDS // PER_TASK
RUNS = range(int(os.environ.get("LOCKSTEP_KILL_RUNS", "1")))  # as many seeds
EACH = {(epoch, task) for epoch in range(EPOCHS) for task in range(TASKS)}


class PsJob:
    """Two servers, some trainers and a coordinator, which start again when they end before their work is done."""

    def __init__(self, stack: ExitStack, folder: Path, trainers: int, *, commit: bool) -> None:
        folder.mkdir()
        flags = (f"--store=file:{folder}/q.db", "--silent=4", "--linger=120")
        self.coordinator: RunningCoordinator = stack.enter_context(coordinator(folder, *flags))
        self.servers: Workers = stack.enter_context(workers(folder / "servers", SERVER))
        self.trainers: Workers = stack.enter_context(workers(folder / "trainers", TRAINER))
        self.ports = [free_port(), free_port()]
        addresses = [f"127.0.0.1:{port}" for port in self.ports]
        self.arguments = (json.dumps(addresses), "commit" if commit else "plain", "0.01")
        self.names = [f"server-{number}" for number in range(2)]
        self.names += [f"trainer-{number}" for number in range(trainers)]
        self.manifest: dict[tuple[int, int], int] = {}  # attempt that counts, by epoch and task
        self.seen_epoch = 0
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        number = int(name.partition("-")[2])
        environment = self.coordinator.environment(number)
        if name.startswith("server"):
            self.servers.start(name, environment, f"127.0.0.1:{self.ports[number]}")
        else:
            self.trainers.start(name, environment, *self.arguments)

    def kill(self, names: list[str]) -> None:
        if "coordinator" in names:
            self.coordinator.kill()
        for name in names:
            group = self.servers if name.startswith("server") else self.trainers
            if name in group.running:
                group.kill(name)

    def look(self) -> bool:
        """Starts what ended too early. True: all trainers have ended with 0."""
        if self.coordinator.process.poll() is not None:
            self.coordinator.start()
        ended = 0
        for name in self.names:
            group = self.servers if name.startswith("server") else self.trainers
            code = group.running[name].poll()
            ended += code == 0
            if code not in (None, 0):
                self.start(name)
        self._read_manifest()
        return ended == len(self.names) - 2

    def _read_manifest(self) -> None:
        """Of the epoch before the present one, when that one has begun; of the last ones at the end."""
        status = self.coordinator.get("/v1/status")
        queues = status["queues"]
        if "tasks" not in queues:
            return
        epoch = int(queues["tasks"]["epoch"])
        for each in {epoch, self.seen_epoch}:
            mine = self._results(each)
            self.manifest = {k: v for k, v in self.manifest.items() if k[0] != each} | mine
        self.seen_epoch = epoch

    def _results(self, epoch: int) -> dict[tuple[int, int], int]:
        try:
            found = self.coordinator.get(f"/v1/results?queue=tasks&epoch={epoch}")["results"]
        except HTTPError as error:
            error.close()
            return {}  # a restore went back to an epoch before it
        return {(epoch, int(one["task"])): int(one["attempt"]) for one in found}

    def counted(self) -> int:
        """Tasks that were counted as done, more than once after a restore."""
        return sum(line[0] == "done" for line in self.trainers.said())

    def until(self, counted: int) -> None:
        end = time.monotonic() + 2 * WITHIN_S
        while self.counted() < counted and not self.look():
            assert time.monotonic() < end, self.story()
            time.sleep(0.05)

    def finish(self) -> None:
        end = time.monotonic() + 2 * WITHIN_S
        while not self.look():
            assert time.monotonic() < end, self.story()
            time.sleep(0.1)

    def story(self) -> str:
        tails = [self.trainers.errors(name)[-1500:] for name in self.trainers.running]
        return "\n".join([f"{self.counted()} counted", *tails, self.coordinator.log()[-1500:]])

    def state(self, number: int) -> dict[str, Any]:
        made = http.client.HTTPConnection("127.0.0.1", self.ports[number], timeout=10)
        with closing(made) as connection:
            connection.request("POST", "/pull", b"{}")
            found: dict[str, Any] = json.loads(connection.getresponse().read())
            return found

    def weights(self) -> list[float]:
        return [float(w) for number in range(2) for w in self.state(number)["weights"]]


@pytest.mark.parametrize("seed", RUNS)
def test_each_record_exactly_once_towards_the_model(
    stack: ExitStack, tmp_path: Path, seed: int
) -> None:
    """Tasks that count with the checkpoint. Servers hold how often each task was applied to their weights."""
    chosen = random.Random(seed)
    job = PsJob(stack, tmp_path / "killed", 1, commit=True)
    calm = PsJob(stack, tmp_path / "calm", 1, commit=True)
    everything = ["coordinator", *job.names]
    kills = [["trainer-0"], ["server-1"], everything, ["coordinator"], ["server-0", "coordinator"]]
    chosen.shuffle(kills)
    for number, names in enumerate([*kills, everything]):
        job.until((number + 1) * 70 + chosen.randrange(20))
        job.kill(names)
    last_kill_s, before = time.monotonic(), job.counted()
    job.until(before + 1)
    print(f"{time.monotonic() - last_kill_s:.1f} s from the last kill to the next task")
    job.finish()
    calm.finish()
    for number in range(2):
        assert job.state(number)["applied"] == {f"{e}-{t}": 1 for e, t in EACH}
    assert set(job.manifest) == EACH
    assert job.weights() == pytest.approx(calm.weights(), rel=0, abs=1e-9)
    assert job.counted() > len(EACH), "nothing had to be done again: the kills came too late"


@pytest.mark.parametrize("seed", RUNS)
def test_each_record_at_least_once_with_many_trainers(
    stack: ExitStack, tmp_path: Path, seed: int
) -> None:
    chosen = random.Random(seed)
    job = PsJob(stack, tmp_path / "killed", 4, commit=False)
    everything = ["coordinator", *job.names]
    all_but_three = ["server-1", "trainer-1", "trainer-2", "trainer-3"]
    kills = [all_but_three, everything]
    kills += [chosen.sample(everything, chosen.randrange(1, 5)) for _ in range(3)]
    killed = 0
    for number, names in enumerate(kills):
        job.until((number + 1) * 80)
        job.kill(names)
        killed += len([name for name in names if name.startswith("trainer")])
        killed += 4 * ("coordinator" in names or any("server" in name for name in names))
    last_kill_s, before = time.monotonic(), job.counted()
    job.until(before + 1)
    print(f"{time.monotonic() - last_kill_s:.1f} s from the last kill to the next task")
    job.finish()
    assert set(job.manifest) == EACH
    tried = Counter(tuple(each) for each in job.trainers.said() if isinstance(each[0], int))
    again = sum(tried.values()) - len(EACH)
    print(f"{again} tasks were seen twice after {killed} lost leases at most")
    assert set(tried) == EACH
    assert again <= killed
    best = [float(number) for number in range(1, 9)]
    assert job.weights() == pytest.approx(best, rel=0.02)
