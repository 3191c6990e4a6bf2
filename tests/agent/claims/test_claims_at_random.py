"""Claims, whole GPUs and shares are asked for at random, and the agent restarts in between: no GPU is in two hands."""

import random

import pytest

from protos.names import GPU, GPU_SHARE
from protos.nearest import device_of
from tests.agent.resources.test_mig_slice import wants
from tests.fakes import machines
from tests.fakes.claim_kubelet import ClaimKubelet, claim_box, plan_claims, planned
from tests.fakes.nodebox import NodeBox

CALLS = 250


class Day:
    def __init__(self, box: NodeBox, kubelet: ClaimKubelet, draw: random.Random) -> None:
        self.box, self.kubelet, self.draw = box, kubelet, draw
        self.claims: dict[str, list[str]] = {}  # prepared
        self.pods: list[str] = []
        self.planned: dict[str, list[str]] = {}
        self.done = {"prepare": 0, "refuse": 0, "admit": 0, "reject": 0}

    def step(self, number: int) -> None:
        match self.draw.random():
            case x if x < 0.3:
                self.prepare(f"c{number}")
            case x if x < 0.6:
                resource = self.draw.choice([(GPU, 1), (GPU, 2), (GPU_SHARE, 50), (GPU_SHARE, 30)])
                admitted = self.box.kubelet.add_pod(wants(f"p{number}", resource))
                self.done["admit" if admitted.ok else "reject"] += 1
                if admitted.ok:
                    self.pods.append(f"uid-p{number}")
                else:
                    self.box.kubelet.remove_pod(f"uid-p{number}")
            case x if x < 0.78 and self.claims:
                name = self.draw.choice([*self.claims])
                assert self.kubelet.unprepare(name) == ""
                del self.claims[name], self.planned[name]
                self.plan()
            case x if x < 0.97 and self.pods:
                self.box.kubelet.remove_pod(self.pods.pop(self.draw.randrange(len(self.pods))))
            case x if x > 0.97:
                self.box.restart_agent()
                self.plan()

    def plan(self) -> None:
        claims = [planned(name, *uuids) for name, uuids in self.planned.items()]
        plan_claims(self.box, *claims)

    def prepare(self, name: str) -> None:
        """The scheduler's knowledge is old now and then: any GPU can be planned."""
        free = {machines.uuid(i) for i in range(8)} - set().union(*self.claims.values(), ())
        if self.draw.random() < 0.7:
            free -= self.of_pods()
        size = min(len(free), self.draw.choice([1, 1, 2]))
        self.planned[name] = self.draw.sample(sorted(free), size)
        self.plan()
        answer = self.kubelet.prepare(name)
        self.done["refuse" if answer.error else "prepare"] += 1
        if answer.error:
            del self.planned[name]
            self.plan()
        else:
            self.claims[name] = self.planned[name]

    def of_pods(self) -> set[str]:
        held = self.box.kubelet.held().values()
        return {device_of(each) for row in held for ids in row.values() for each in ids}

    def check(self) -> None:
        in_claims = [uuid for uuids in self.claims.values() for uuid in uuids]
        assert len(in_claims) == len(set(in_claims))
        assert not self.of_pods().intersection(in_claims), (self.box.kubelet.held(), self.claims)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_gpu_is_in_two_hands(seed: int) -> None:
    with claim_box() as (box, kubelet):
        box.start()
        day = Day(box, kubelet, random.Random(seed))
        for number in range(CALLS):
            day.step(number)
            day.check()
        assert min(day.done.values()) > CALLS / 50, day.done
