"""Extensions that raise, in a real scheduler process: each stops the object that triggers it and nobody else, says
so wherever users and operators look, and does so again after a restart."""

import tempfile
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, Failed, free_port
from protos.names import BLOCK, RACK
from tests.central.kube.raw_objects import container
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = pytest.mark.slow

PROGRAM = """
import sys

from central.cli.main import main
from central.scheduler import refusal_reasons
from central.scheduler.filters import node_filters
from central.scheduler.queues import quota


def bad_filter(spec, node):
    if ("poison", "filter") in spec.node_selector:
        raise TypeError("the filter can't read it")
    return ""


def bad_policy(request):
    if request.gang.name == "by-policy":
        raise KeyError("the policy")
    return ""


real = refusal_reasons.refresh


def bad_refresh(scheduler, now):
    if any(gang.name == "fails-all" for gang in scheduler.state.pending.waiting.values()):
        raise ZeroDivisionError("the reasons of all")
    real(scheduler, now)


refusal_reasons.refresh = bad_refresh
node_filters.REFUSALS = (bad_filter, *node_filters.REFUSALS)
quota.QUEUE_POLICIES += (bad_policy,)
sys.exit(main())
"""
WHY = "set aside after a failure of the scheduler (a bug): "
POISON = {"by-filter": "TypeError: the filter can't read it", "by-policy": "KeyError: 'the policy'"}
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
PODS = "/api/v1/namespaces/{}/pods"
WITHIN_S = 1.0  # and twenty times what it takes without the poison, on a machine that is busy


class Cluster:
    def __init__(self, box: FaultyCluster, program: Path, metrics: str) -> None:
        self.box, self._program, self._metrics = box, program, metrics

    def start(self) -> None:
        self.box.start_scheduler([str(self._program)])

    def submit(self, name: str, namespace: str, **spec: object) -> None:
        group = {"metadata": {"name": name}, "spec": {"minMember": 2, "queue": "default"}}
        version = "scheduling.volcano.sh/v1beta1"
        self.box.create(
            GROUPS.format(namespace), {"apiVersion": version, "kind": "PodGroup", **group}
        )
        for rank in range(2):
            notes = {"scheduling.k8s.io/group-name": name}
            meta = {"name": f"{name}-{rank}", "annotations": notes}
            body = {"schedulerName": "lockstep", "containers": [container()], **spec}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}
            self.box.create(PODS.format(namespace), pod)

    def bound(self, name: str, namespace: str) -> bool:
        paths = (f"{PODS.format(namespace)}/{name}-{rank}" for rank in range(2))
        return all(self.box.client.get(path)["spec"].get("nodeName") for path in paths)

    def time_to_bind(self, name: str, namespace: str) -> float:
        began = time.monotonic()
        self.submit(name, namespace)
        self.box.wait(f"gang {name}", lambda: self.bound(name, namespace))
        return time.monotonic() - began

    def reason(self, name: str) -> str:
        group = self.box.client.get(f"{GROUPS.format('evil')}/{name}")
        conditions = (group.get("status") or {}).get("conditions") or ()
        return next((str(each["message"]) for each in conditions if WHY in each["message"]), "")

    def event(self, name: str) -> str:
        """The message of the Event that its PodGroup has."""
        found = self.box.client.get("/api/v1/namespaces/evil/events")["items"]
        return next(
            (
                str(each["message"])
                for each in found
                if each["involvedObject"]["name"] == name and WHY in (each.get("message") or "")
            ),
            "",
        )

    def set_aside(self) -> int:
        """Gangs that are set aside, as the metric has it."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=10) as reply:
            text = reply.read().decode()
        lines = [line for line in text.splitlines() if line.startswith("lockstep_quarantined_obj")]
        return next((int(float(line.split()[-1])) for line in lines if 'kind="gang"' in line), 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    nodes = [
        HollowNode(f"n{i}", {RACK: "r", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json") for i in range(2)
    ]
    metrics = f"127.0.0.1:{free_port()}"
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
    with FaultyCluster(nodes, flags=["--metrics-listen", metrics]) as box:
        box.start_api()
        program = box.directory / "extended.py"
        program.write_text(PROGRAM)
        made = Cluster(box, program, metrics)
        made.start()
        box.start_nodes()
        box.wait_for_scheduler()
        for name in ("good", "evil"):
            box.create(
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            )
        queue = {"kind": "Queue", "metadata": {"name": "default"}, "spec": {"weight": 1}}
        box.create("/apis/scheduling.volcano.sh/v1beta1/queues", queue)
        yield made


def test_an_extension_that_raises_stops_its_object_alone(cluster: Cluster) -> None:
    box = cluster.box
    usual = min(cluster.time_to_bind(f"before-{number}", "good") for number in range(3))
    cluster.submit("by-filter", "evil", nodeSelector={"poison": "filter"})
    cluster.submit("by-policy", "evil")
    assert cluster.time_to_bind("other", "good") < max(WITHIN_S, 20 * usual)
    for name, error in POISON.items():
        condition = box.wait(f"the condition of {name}", partial(cluster.reason, name))
        event = box.wait(f"the Event of {name}", partial(cluster.event, name))
        assert error in condition
        assert error in event
        answer = box.explain(name, "evil")
        assert answer is not None
        assert error in answer.reason
    log = box.scheduler_log.read_text()
    for name in POISON:
        assert f"a bug in the scheduler, set aside: gang evil/{name}" in log
    assert "bad_filter" in log
    assert "bad_policy" in log
    box.wait("the metric", lambda: cluster.set_aside() == len(POISON))

    box.kill_scheduler()
    cluster.submit("meanwhile", "good")
    cluster.start()
    box.wait("the gang that waited", lambda: cluster.bound("meanwhile", "good"))
    box.wait("the metric after the restart", lambda: cluster.set_aside() == len(POISON))
    assert cluster.time_to_bind("after", "good") < max(WITHIN_S, 20 * usual)
    assert not any(cluster.bound(name, "evil") for name in POISON)
    box.check()


def test_a_bug_that_is_in_no_object_ends_the_process_with_its_traceback(cluster: Cluster) -> None:
    """The state was built again before, once. The next process schedules once the bug is not triggered any more."""
    box, path = cluster.box, f"{PODS.format('evil')}/fails-all-"
    cluster.submit("fails-all", "evil", nodeSelector={"pool": "none"})
    with pytest.raises(Failed, match="exit code 1"):
        box.wait("the end of the scheduler", lambda: None)
    log = box.scheduler_log.read_text()
    assert "a bug in the scheduler, its state is built again" in log
    assert log.rstrip().endswith("ZeroDivisionError: the reasons of all")
    for rank in range(2):
        assert box.client.request("DELETE", f"{path}{rank}").ok
    box.kill_scheduler()
    cluster.start()
    cluster.submit("after", "good")
    box.wait("the gang of another namespace", lambda: cluster.bound("after", "good"))
