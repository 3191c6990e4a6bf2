"""/metrics of a real scheduler process beside real agents: what a constructed cluster must show, by name; that promtool
accepts the text; and that the series of 1,000 queues are bounded."""

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, free_port
from protos.names import BLOCK, GPU, RACK
from tests.central.local_clusters import started
from tests.central.server.test_scheduler_process import confirmed, reported, submit
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PATIENCE_S = 180.0
Samples = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def box() -> Iterator[tuple[FaultyCluster, int]]:
    port = free_port()
    nodes = [
        HollowNode(f"n{at}", {RACK: f"r{at}", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for at in range(2)
    ]
    flags = [f"--metrics-listen=127.0.0.1:{port}", "--metrics-queues=20"]
    with started(nodes, flags=flags) as made:
        made.wait("the agents", lambda: reported(made))
        yield made, port


def text(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as reply:
        return str(reply.read().decode())


def samples(port: int) -> Samples:
    """By name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text(port))
        for sample in family.samples
    }


def queue(name: str, **spec: object) -> dict[str, object]:
    api = "scheduling.volcano.sh/v1beta1"
    return {"apiVersion": api, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def test_a_cluster_at_work(box: tuple[FaultyCluster, int]) -> None:
    """Of 16 GPUs `train` has 12 of queue default; `giant` waits for 24, `never` for nodes of 9."""
    cluster, port = box
    submit(cluster, "train", 3, 4)
    cluster.wait("train", lambda: confirmed(cluster, "train"))
    submit(cluster, "giant", 3, 8)
    submit(cluster, "never", 1, 9)
    wanted: Samples = {
        ("lockstep_scheduler_leader",): 1,
        ("lockstep_nodes",): 2,
        ("lockstep_gpus",): 16,
        ("lockstep_queue_used", "default", GPU): 12,
        ("lockstep_queue_requested", "default", GPU): 33,
        ("lockstep_queue_pending_gangs", "never", "default"): 2,
        ("lockstep_queue_pending_gpus", "never", "default"): 33,
        ("lockstep_queue_gangs", "running", "default"): 1,
        ("lockstep_queue_gangs", "pending", "default"): 2,
        ("lockstep_queue_gangs_started_total", "default"): 1,
        ("lockstep_pod_bind_duration_seconds_count",): 3,
        ("lockstep_largest_gang_gpus", "node", "NVIDIA A100-SXM4-80GB", "1"): 4,
    }
    seen: Samples = {}

    def shown() -> bool:
        seen.update(samples(port))
        return {key: seen.get(key) for key in wanted} == wanted

    try:
        cluster.wait("the metrics", shown, PATIENCE_S)
    finally:
        print({key: (seen.get(key), value) for key, value in wanted.items()})
    assert 0 < seen["lockstep_queue_oldest_pending_seconds", "default"] < 600
    assert any(name == "lockstep_build_info" for name, *_ in seen)


def test_promtool_accepts_the_text(box: tuple[FaultyCluster, int]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool (Debian: apt install prometheus)")
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=text(box[1]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_a_thousand_queues_make_no_more_series_than_fifty(box: tuple[FaultyCluster, int]) -> None:
    cluster, port = box

    def count_at(number: int) -> int:
        for at in range(number):
            cluster.create(QUEUES, queue(f"q{at}", deserved={GPU: 1 + at % 7}))
        cluster.wait(
            f"{number} queues",
            lambda: samples(port).get(("lockstep_queues",), 0) >= number,
            PATIENCE_S,
        )
        found = samples(port)
        named = {key[1] for key in found if key[0] == "lockstep_queue_deserved"}
        assert len(named) <= 21
        assert "_other" in named
        return len(re.findall(r"^[a-z]\w*queue\w*\{", text(port), re.MULTILINE))

    few = count_at(50)
    assert few > 100
    assert abs(count_at(1000) - few) <= few / 10
