"""The kubelet is killed a hundred times while pods start."""

import random
import threading
import time

import pytest

from protos.names import GPU
from tests.fakes.eventually import eventually
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.nodebox import NodeBox, gpus, intent, node_box, pod

pytestmark = pytest.mark.slow

DEATHS = 100
GRACE_S = 30.0


def held(kubelet: HollowKubelet) -> dict[str, list[int]]:
    """The GPUs of each pod as the kubelet has them; asserts that no GPU is allocated twice."""
    rows = {
        key[1]: sorted(int(device[4:12]) for device in row[GPU])
        for key, row in kubelet.held().items()
    }
    given = [gpu for row in rows.values() for gpu in row]
    assert len(given) == len(set(given)), f"given twice: {rows}"
    return rows


class Crowd:
    """Pods that start, run and end beside a kubelet that is killed; running pods are not
    disturbed."""

    def __init__(self, box: NodeBox, seed: int) -> None:
        self.box, self.order = box, random.Random(seed)
        self.running: dict[str, list[int]] = {}
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.starting = threading.Event()
        self.began = 0

    def live(self, worker: int) -> None:
        order = random.Random(worker)
        number = 0
        while not self.stop.is_set():
            number += 1
            name = f"w{worker}-{number}"
            self.start(name, order.randint(1, 3), planned=order.random() < 0.5)
            mine = [each for each in self.snapshot() if each.startswith(f"w{worker}-")]
            if mine and (len(mine) > 1 or order.random() < 0.7):
                with self.lock:
                    del self.running[mine[0]]
                self.box.kubelet.remove_pod(f"uid-{mine[0]}")

    def start(self, name: str, size: int, *, planned: bool) -> None:
        made = pod(name, size)
        if planned:
            free = set(range(8)) - {gpu for row in self.snapshot().values() for gpu in row}
            if len(free) >= size:
                self.box.plan(intent(name, sorted(free)[:size]))
        deadline = time.monotonic() + GRACE_S
        while not self.stop.is_set():
            assert time.monotonic() < deadline, f"{name} is never admitted"
            self.starting.set()
            answer = self.box.kubelet.add_pod(made, start=False)
            if answer.reason == "KubeletDied":
                time.sleep(0.002)
                continue  # the next kubelet admits it again
            if not answer.ok:  # its controller would create another
                self.box.kubelet.remove_pod(made.uid)
                time.sleep(0.005)
                return
            told = gpus(answer)
            with self.lock:
                self.running[name] = told
                self.began += 1
            self.box.kubelet.start_pod(made.uid)  # may fail and is retried
            return

    def snapshot(self) -> dict[str, list[int]]:
        with self.lock:
            return dict(self.running)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_deaths_of_the_kubelet_while_pods_start(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """In two halves. Each kill is at a random moment after a pod has begun to start."""
    with node_box() as box:
        box.start()
        crowd = Crowd(box, seed)
        workers = [threading.Thread(target=crowd.live, args=(number,)) for number in range(3)]
        for worker in workers:
            worker.start()
        try:
            for _ in range(DEATHS // 2):
                if crowd.order.random() < 0.3:
                    eventually(lambda: box.kubelet.allocatable.get(GPU) == 8, GRACE_S)
                crowd.starting.clear()
                crowd.starting.wait(1.0)
                time.sleep(crowd.order.random() * 0.02)
                before = crowd.snapshot()
                box.kubelet.kill()
                time.sleep(crowd.order.choice([0.0, 0.0, 0.01]))
                box.kubelet.start()
                rows, still = held(box.kubelet), crowd.snapshot()
                for name in before.keys() & still.keys() & rows.keys():
                    assert rows[name] == before[name], "a running pod was disturbed"
        finally:
            crowd.stop.set()
            for worker in workers:
                worker.join(GRACE_S)
        eventually(lambda: box.kubelet.allocatable.get(GPU) == 8, GRACE_S)
        living = crowd.snapshot()
        assert held(box.kubelet) == living
        assert crowd.began > 3
        for name in living:
            assert box.kubelet.start_pod(f"uid-{name}").ok, "what was admitted can start"
        eventually(lambda: box.truth() == living)
        rest = 8 - sum(map(len, living.values()))
        if rest:
            assert len(gpus(box.kubelet.add_pod(pod("rest", rest)))) == rest
        assert sum(map(len, held(box.kubelet).values())) == 8
    assert "Traceback" not in caplog.text
