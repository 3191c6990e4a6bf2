"""Every example in the simulation, as it is; and each that is a Job in the cluster in a box: made, placed,
run by hollow kubelets, and over; what is cleared away and what stays."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from central.cli.main import main
from central.simulator.node_defaults import CAPTURE
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from protos.names import BLOCK, DOMAINS, GPU_MEMORY_LEVEL, RACK
from tests.central.local_clusters import started
from tests.fakes.faulty_cluster import FaultyCluster

EXAMPLES = Path(__file__).parents[2] / "daemonset/examples"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
CORE = "/api/v1/namespaces/default"
RUNS_FOR = "lockstep.dev/runs-for"
# Whose end is the job's: theirs ends by itself, the others' never; and the pods that are kept.
ENDS = {
    "mpi": ("mpimaster", ["lm-mpi-job-mpimaster-0"]),
    "tensorflow": ("worker", ["tensorflow-benchmark-worker-0", "tensorflow-benchmark-worker-1"]),
    "horovod": ("master", ["lm-horovod-job-master-0"]),
    "paddle-ctr": ("trainer", ["ctr-volcano-trainer-0", "ctr-volcano-trainer-1"]),
    "pytorch": ("worker", ["ddp-worker-0", "ddp-worker-1"]),
    "spark": ("driver", ["spark-pi-driver-0"]),
    "ray": ("program", ["ray-cluster-program-0"]),
}


def example(name: str) -> Any:
    """The manifest, with the time that the task takes that ends by itself."""
    job = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    for task in job["spec"]["tasks"]:
        if task["name"] == ENDS[name][0]:
            task["template"].setdefault("metadata", {})["annotations"] = {RUNS_FOR: "1s"}
    return job


@pytest.fixture(scope="module")
def box() -> Iterator[FaultyCluster]:
    nodes = [
        HollowNode(f"n{i}", {RACK: f"r{i}", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for i in range(2)
    ]
    with started(nodes) as made:
        for name in ENDS:  # all at once: they have room
            made.client.request("POST", JOBS, json.dumps(example(name)).encode())
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_in_the_box(box: FaultyCluster, name: str) -> None:
    job = example(name)["metadata"]["name"]
    client = box.client

    def completed() -> Any:
        status = client.get(f"{JOBS}/{job}").get("status") or {}
        assert status.get("state", {}).get("phase") != "Failed", status
        return status if status.get("state", {}).get("phase") == "Completed" else None

    box.wait(f"{name} to be Completed", lambda: completed() is not None)

    def left() -> dict[str, Any]:
        pods = client.get(f"{PODS}?labelSelector=volcano.sh/job-name={job}")["items"]
        return {pod["metadata"]["name"]: pod for pod in pods}

    box.wait("the others to be cleared away", lambda: sorted(left()) == ENDS[name][1])
    for pod in left().values():
        assert pod["status"]["phase"] == "Succeeded"
        rack = pod["metadata"]["annotations"][RACK]
        assert pod["metadata"]["annotations"][DOMAINS] == f"b/{rack}"
    files = client.get(f"{CORE}/configmaps/{job}-svc")["data"]
    hosts = [line for key, text in files.items() if key.endswith(".host") for line in text.split()]
    assert set(ENDS[name][1]) <= {host.partition(".")[0] for host in hosts}
    assert client.get(f"{CORE}/services/{job}")["spec"]["clusterIP"] == "None"
    named = {one["metadata"]["name"] for one in client.get(f"{CORE}/secrets")["items"]}
    assert any(one.startswith(f"{job}-ssh-") for one in named) == (name in {"mpi", "horovod"})


@pytest.mark.parametrize("name", ENDS)
def test_in_the_simulation(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {RACK: "r"}},
        "status": {"allocatable": {"cpu": 64, "memory": "256Gi", "pods": 110, "nvidia.com/gpu": 8}},
    }
    path = tmp_path / "story.json"
    path.write_text(f"{json.dumps(node)}\n---\n{json.dumps(example(name))}\n")
    assert main(["simulate", str(path), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [
        one["phase"] for one in told["ended"] if one["name"] == example(name)["metadata"]["name"]
    ] == ["Completed"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_finds_its_place(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On four machines in two racks; but for the one that is about waiting."""
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"a{i}",
                "labels": {RACK: f"r{i // 2}", BLOCK: "b"},
                "annotations": {CAPTURE: "dgx-a100-8", GPU_MEMORY_LEVEL: "mps"},
            },
        }
        for i in range(4)
    ]
    cluster = tmp_path / "cluster.json"
    cluster.write_text("\n".join(json.dumps(node) for node in nodes))
    assert main(["simulate", str(cluster), str(path), "-o", "json"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    found = json.loads(told.out)
    if path.stem == "gang-too-big":
        [waits] = found["waiting"]
        assert waits["reason"].startswith("needs 64 pods x 8 GPUs in one rack; best candidate r")
        assert found["placements"] == []
    else:
        assert found["waiting"] == []
        assert found["placements"] != []
