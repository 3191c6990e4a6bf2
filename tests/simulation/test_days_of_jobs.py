"""Busy days of Jobs: pods fail and are killed, nodes vanish, the API server refuses or does not answer in
time, people suspend, resume, scale and delete, and the centre falls and comes again. Then nothing
breaks any more, and every Job comes to its end, with no pod too many."""

import os
import random
from collections import Counter

import pytest

from central.model import member_numbers
from central.model.decisions import Bind, Create, Decision, Delete, Patch, SetStatus
from tests.central.controllers.job.job_api import Api, Json, job

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "4"))
FAULTS_END, LATEST = 150, 2000
POLICIES = (
    (),
    ("PodEvicted RestartJob",),
    ("PodFailed RestartPod", "PodEvicted RestartPod"),
    ("PodFailed RestartTask",),
    ("PodFailed RestartJob",),
    ("PodFailed AbortJob 20s",),
    ("7 RestartPod", "PodFailed CompleteJob"),
)
MASTER = {"policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]}
FINISHED = ("Completed", "Failed", "Terminated")


class Day:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.api = Api(nodes=3, cpu=1000)
        self.api.grace_steps = self.dice.choice((0, 1, 3))
        self.api.refuses = self._refuses
        self.api.loses = self._loses
        slow = self.dice.choice((0, 1, 4))
        self.api.lag = lambda: self.dice.randint(0, slow)
        self.faults = True
        self.seen: Counter[str] = Counter()
        self.trace: list[Decision] = []
        self.jobs = 0

    def live(self) -> None:
        for now in range(FAULTS_END):
            self._people(now)
            self.kubelets()
            self._weather()
            self._turn()
        self.faults = False
        for _ in range(LATEST):
            self.kubelets()
            self.resume()
            self._turn()
            if all(self._phase(name) in FINISHED for name in self.api.names("Job")):
                break
        for _ in range(80):  # what is over is tidied up
            self._turn()

    def _turn(self) -> None:
        self.trace += self.api.step()
        names = Counter(
            raw["metadata"]["name"] for (kind, _), raw in self.api.there.items() if kind == "Pod"
        )
        assert max(names.values(), default=0) <= 1

    def _phase(self, name: str) -> str:
        return self.api.phase(name)

    def _people(self, now: int) -> None:
        dice = self.dice
        if now < 100 and dice.random() < 0.12:
            self.jobs += 1
            self.api.apply(self._job(f"j{self.jobs}"))
        names = self.api.names("Job")
        if names and dice.random() < 0.05:
            name = dice.choice(names)
            action = dice.choice(("AbortJob", "ResumeJob", "RestartJob", "CompleteJob"))
            self.seen[action] += 1
            self._command(action, name)
        if names and dice.random() < 0.02:
            self.seen["deleted"] += 1
            self.api.delete_job(dice.choice(names))
        elif names and dice.random() < 0.04:
            self._scale(dice.choice(names))

    def _command(self, action: str, name: str) -> None:
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name}
        target["uid"] = self.api.job(name)["metadata"]["uid"]
        meta = {"name": f"c{sum(self.seen.values())}"}
        raw = {"kind": "Command", "metadata": meta, "action": action, "target": target}
        self.api.apply(raw)

    def _job(self, name: str) -> Json:
        dice = self.dice
        tasks = (
            {"m": 1, "w": dice.randint(1, 4)} if dice.random() < 0.5 else {"w": dice.randint(1, 4)}
        )
        of: dict[str, Json] = {"m": MASTER} if "m" in tasks else {}
        if "m" in tasks and dice.random() < 0.4:
            of["w"] = {"dependsOn": {"name": ["m"]}}
            of["m"] = {}
        more: Json = {"plugins": {"svc": [], "ssh": []}} if dice.random() < 0.3 else {}
        return job(tasks, *dice.choice(POLICIES), of=of, name=name, maxRetry=50, **more)

    def _scale(self, name: str) -> None:
        raw = self.api.job(name)
        tasks = [
            {**task, "replicas": self.dice.randint(1, 5)} if task["name"] == "w" else task
            for task in raw["spec"]["tasks"]
        ]
        self.seen["scaled"] += 1
        self.api.apply({**raw, "spec": {**raw["spec"], "tasks": tasks}})

    def kubelets(self) -> None:
        for name, phase in self.api.pods().items():
            if phase == "Running" and self.dice.random() < 0.06:
                code = self.dice.choice((0, 0, 1, 7)) if self.faults else 0
                self.seen["failed" if code else "succeeded"] += 1
                self.api.end(name, code)

    def _weather(self) -> None:
        dice = self.dice
        if (pods := list(self.api.pods())) and dice.random() < 0.08:
            self.seen["killed"] += 1
            self.api.evict(dice.choice(pods))
        if dice.random() < 0.02:
            self.seen["node lost"] += 1
            self.api.lose_node(dice.choice(("n0", "n1", "n2")))
        if dice.random() < 0.03:
            self.seen["fell"] += 1
            self.api.fall()

    def resume(self) -> None:
        for name in self.api.names("Job"):
            if self._phase(name) == "Aborted" and self.dice.random() < 0.2:
                self.seen["resumed"] += 1
                self._command("ResumeJob", name)

    def _refuses(self, decision: Decision) -> str:
        if not self.faults or isinstance(decision, Bind) or self.dice.random() > 0.04:
            return ""
        self.seen["refused"] += isinstance(decision, Create | Delete | SetStatus | Patch)
        return (
            "the server is away"
            if isinstance(decision, Create | Delete | SetStatus | Patch)
            else ""
        )

    def _loses(self, decision: Decision) -> bool:
        lost = (
            isinstance(decision, Create | Delete | SetStatus | Patch) and self.dice.random() < 0.04
        )
        self.seen["answer lost"] += lost and self.faults
        return lost and self.faults


def lived(seed: int) -> Day:
    day = Day(seed)
    day.live()
    return day


@pytest.mark.parametrize("seed", range(DAYS))
def test_every_job_comes_to_its_end(seed: int) -> None:
    day = lived(seed)
    api = day.api
    left = {name: api.status(name) for name in api.names("Job") if api.phase(name) not in FINISHED}
    assert not left
    jobs = {api.job(name)["metadata"]["uid"]: name for name in api.names("Job")}
    for name, phase in api.pods().items():
        owner = api.there["Pod", name]["metadata"]["ownerReferences"][0]
        assert owner["uid"] in jobs, f"{name} is nobody's"
        assert phase in ("Succeeded", "Failed"), f"{name} is {phase}, its Job is over"
    for name in api.names("Command"):
        assert api.there["Command", name]["target"]["uid"] not in jobs, f"{name} was not obeyed"
    for name in api.names("PodGroup"):
        assert api.there["PodGroup", name]["metadata"]["ownerReferences"][0]["uid"] in jobs
    for name in jobs.values():
        status = api.status(name)
        assert (status["running"], status["pending"], status["terminating"]) == (0, 0, 0)
        there = {pod for pod in api.pods() if api.annotation(pod, "volcano.sh/job-name") == name}
        completed = {
            f"{name}-{task}-{index}"
            for task, indices in status.get("completedIndexes", {}).items()
            for index in member_numbers.from_text(indices)
        }
        assert status["succeeded"] + status["failed"] == len(there | completed)
    exercised = {name for name, times in day.seen.items() if times}
    assert {"killed", "failed", "refused", "answer lost"} <= exercised


def test_same_seed_same_story() -> None:
    assert lived(1).trace == lived(1).trace
