"""The day of an elastic Job on real kubelets, as its record tells it: it starts, a GPU of it makes errors, it shrinks for
others, is preempted, comes back, and ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import elastic_jobs
from tests.e2e.cluster.settings import STATE
from tests.e2e.elastic_jobs import ElasticRun, Service
from tests.e2e.test_user_cli import lockstep
from tests.e2e.world import World, until
from tests.fakes.nvml.build import CONTROL
from tests.fakes.nvml.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
Json = dict[str, Any]
MEMBER = """
import pathlib, time
while not pathlib.Path("/shared/end").exists():
    time.sleep(0.1)
"""


def test_the_record_tells_the_day_of_a_job(cluster: World, namespace: str, tmp_path: Path) -> None:
    service = Service(cluster, namespace)
    run = ElasticRun(cluster, namespace, tmp_path / "elastic")
    script = elastic_jobs.write_script(run.folder, MEMBER)
    worker = run.program("worker", f"python3 {script}", 2, minAvailable=2, replicas=4)
    run.apply(worker, elastic=["--task=worker", "--hold=5s"])

    def running(count: int) -> bool:
        phases = [raw["status"]["phase"] for raw in run.pods().values()]
        return phases.count("Running") == count == len(phases)

    def record() -> Json:
        found: Json = json.loads(
            cluster.lockstep("job", "history", "-n", namespace, "train", "-o", "json")
        )
        return found

    run.until("four members", lambda: running(4))
    held = until("the truth", cluster.agreed)
    (pod, found) = next(iter(held.items()))
    node = next(raw["spec"]["nodeName"] for name, raw in run.pods().items() if name == pod[1])
    index = next(g.index for g in cluster.topologies()[node].gpus if g.uuid == found.gpus[0])
    control = Control(STATE / "hardware" / node / "driver" / CONTROL)
    control.passing_xid(index)
    until("7 allocatable GPUs", lambda: cluster.allocatable()[node] == 7, 60)
    until("8 allocatable GPUs", lambda: cluster.allocatable()[node] == 8, 90)
    control.forget("recovery")
    service.comes("first", 8)
    service.comes("second", 4)
    run.until("it to shrink", lambda: running(2))
    service.comes("third", 4)
    run.until(
        "it to wait", lambda: all(not raw["spec"].get("nodeName") for raw in run.pods().values())
    )
    service.goes("first", "second", "third")
    run.until("it to be whole again", lambda: running(4))
    (run.folder / "end").touch()
    run.completed()
    told = until("its end in the record", lambda: (r := record())["ended"] and r)
    happened = [(each["what"], each["cause"], each["text"]) for each in told["events"]]
    whats = [what for what, _, _ in happened]
    assert whats[:2] == ["created", "admitted"]
    assert whats[-1] == told["stage"] == "completed"
    assert any(what == "GPU unhealthy" and "XID 94" in text for what, _, text in happened), happened
    shrank = next(text for what, _, text in happened if what == "shrank")
    assert "4 to 2 members" in shrank
    assert "room for second" in shrank
    evicted = [(cause, text) for what, cause, text in happened if what == "evicted"]
    assert evicted == [
        ("preemption", f"2 pods: preempted by {namespace}/third (priority 1000 > 0)")
    ]
    assert whats.count("waits again") == 1, happened
    assert "grew" in whats[whats.index("waits again") :]
    assert set(told["nodes"]) == {"node-1", "node-2"}
    spent = told["gpu_seconds"]
    assert spent["allocated"] > spent["lost"] > 0
    page = lockstep(namespace, "job", "history", "train")
    for text in ("State:        completed", "preempted by", "XID 94", shrank):
        assert text in page
    service.end()
