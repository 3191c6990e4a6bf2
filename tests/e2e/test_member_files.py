"""Members of an elastic Job on real kubelets read in their files that they leave, without a coordinator, and end before
their pods are deleted. Measures how long it takes from the scheduler's write until a process reads it."""

import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from central.kube.decode.quantities import parse_time
from central.model.member_files import ANNOTATIONS, PATH
from tests.e2e import elastic_jobs
from tests.e2e.cluster.settings import ROOT, say
from tests.e2e.elastic_jobs import ElasticRun, Service
from tests.e2e.world import HEALING, World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(580)]
Json = dict[str, Any]
RIGHTS = ROOT / "daemonset/chart/files/elastic/rights.yaml"
LEAVE_FOR_NEEDS_S = 5.0  # half a minute for anything else
LATE_S = 12.0  # on a machine that is busy
SYNC_S = 180.0  # twice what a kubelet takes at most from one look at a pod to the next
# Prints the files as often as they change, and ends when they say that it leaves.
MEMBER = f"""
import json, os, pathlib, time
from lockstep_train import stopping
folder, last = pathlib.Path("{PATH}"), None
def look():
    while True:  # the kubelet replaces all of them at once
        version = os.readlink(folder / "..data")
        found = {{name: (folder / name).read_text() for name in {sorted(ANNOTATIONS)}}}
        if os.readlink(folder / "..data") == version:
            return found
def tell(found):
    print(json.dumps({{"pod": os.environ["HOSTNAME"], "at": time.time(), **found}}), flush=True)
while not stopping():
    found = look()
    if found != last:
        tell(found)
        last = found
    time.sleep(0.02)
tell(look())
"""


@pytest.fixture
def _rights(cluster: World) -> Iterator[None]:
    cluster.kubectl("apply", "-f", str(RIGHTS))
    yield
    cluster.kubectl("delete", "-f", str(RIGHTS))


class Members(ElasticRun):
    """Notes when the API server had which files of a pod, and when the pod ended."""

    def __init__(self, cluster: World, namespace: str, folder: Path) -> None:
        super().__init__(cluster, namespace, folder)
        self.written: dict[tuple[str, str, str], float] = {}  # by pod, generation, leaving
        self.ended: dict[str, float] = {}
        self.deleted: dict[str, float] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Looks all the time, also while the test waits for others."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                with suppress(*HEALING):
                    self.look()
                stop.wait(0.02)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def look(self) -> None:
        for name, raw in self.pods().items():
            given = raw["metadata"]["annotations"]
            key = (name, given[ANNOTATIONS["generation"]], given.get(ANNOTATIONS["leaving"], ""))
            self.written.setdefault(key, time.time())
            if raw["status"]["phase"] == "Succeeded":
                self.ended.setdefault(name, time.time())
            if "deletionTimestamp" in raw["metadata"]:
                self.deleted.setdefault(name, time.time())

    def read(self, leaving: str, size: str) -> dict[str, Json]:
        """By pod, what it read first of these."""
        found: dict[str, Json] = {}
        for one in self.said():
            if (one["leaving"], one["size"]) == (leaving, size):
                found.setdefault(one["pod"], one)
        return found

    def story(self) -> str:
        """With what the API server has, and what the members read."""
        given = {name: raw["metadata"]["annotations"] for name, raw in self.pods().items()}
        lines = [json.dumps(one) for one in (given, *self.said())]
        return "\n".join([super().story(), *lines])

    def delays(self, read: dict[str, Json]) -> list[float]:
        """From the write to the read, in seconds, of those whose write was seen."""
        keys = {(pod, one["generation"], one["leaving"]): one["at"] for pod, one in read.items()}
        return [at - self.written[key] for key, at in keys.items() if key in self.written]


@pytest.mark.usefixtures("_rights")
def test_members_read_that_they_leave_and_end_by_themselves(
    cluster: World, namespace: str, tmp_path: Path
) -> None:
    service = Service(cluster, namespace)
    for name in ("first", "second"):
        service.comes(name, 6)  # of 8 GPUs of a node
    run = Members(cluster, namespace, tmp_path / "elastic")
    script = elastic_jobs.write_script(run.folder, MEMBER)
    worker = run.program("worker", f"python3 {script}", 1, minAvailable=2, replicas=4)
    run.apply(worker, elastic=["--task=worker", "--files", "--hold=5s"])
    with run.watched():
        run.until("four members", lambda: len(run.read("", "4")) == 4)
        asked = time.time()
        service.comes("third", 2)
        run.until("two to end", lambda: len(run.read("true", "2")) == 2 and len(run.pods()) == 2)
        run.until("two to stay", lambda: len(run.read("", "2")) == 2, SYNC_S)
    leaving, staying = run.read("true", "2"), run.read("", "2")
    assert leaving.keys().isdisjoint(staying)
    told_s = run.delays(leaving) + run.delays(staying)
    for pod, one in leaving.items():
        by = parse_time(one["leave-by"])
        assert one["at"] < by, f"{pod} reads it too late"
        assert asked < by <= asked + LEAVE_FOR_NEEDS_S + LATE_S
        gone = min(run.ended.get(pod, by), run.deleted.get(pod, by))
        assert gone <= by + LATE_S
    status = run.status()
    assert (status["state"]["phase"], status.get("retryCount", 0)) == ("Running", 0)
    assert status["elastic"]["worker"]["size"] == 2
    say(
        f"files of members: read {min(told_s):.2f} to {max(told_s):.2f} s after the write was seen "
        f"(median {statistics.median(told_s):.2f} s of {len(told_s)}); those who left read it "
        f"{max(one['at'] for one in leaving.values()) - asked:.1f} s after others needed their seats, at the latest"
    )
    run.delete()
    service.end()
