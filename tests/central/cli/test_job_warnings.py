"""`lockstep job run` says at once what cannot be."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from central.cli.main import main
from tests.central.cli.run_cli import Lockstep

Put = Callable[[str, dict[str, Any]], dict[str, Any]]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def cluster(put: Put, lockstep: Lockstep) -> None:
    """A node with 8 GPUs, the queue research with 12, the PriorityClass high."""
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    put("/api/v1/nodes", {**head, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    spec = {"capability": {"nvidia.com/gpu": 12}}
    put(QUEUES, {**queue, "metadata": {"name": "research"}, "spec": spec})
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5}
    put(CLASSES, {**priority, "metadata": {"name": "high"}})


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-q", "reserch"), "queue reserch does not exist; did you mean research?"),
        (("--priority", "hihg"), "PriorityClass hihg does not exist; did you mean high?"),
        (("-g", "9"), "can never start: no node has 9 GPUs, the most is 8"),
        (("-q", "research", "-g", "8", "-r", "2"), "has a capability of 12 GPUs; 16 are needed"),
        (("-q", "research", "--priority", "high", "-g", "8"), ""),
        ((), ""),
    ],
)
def test_a_job_that_cannot_start(
    flags: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("job", "run", "-N", "j", "-i", "x", *flags)) == 0
    output = capsys.readouterr()
    assert " created\n" in output.out
    assert says in output.err
    assert bool(output.err) == bool(says)


def test_a_level_that_no_node_has(
    put: Put, lockstep: Lockstep, capsys: pytest.CaptureFixture[str]
) -> None:
    def warned(level: str) -> str:
        main(("job", "run", "j", "--within", level))
        main(("job", "delete", "j"))
        return capsys.readouterr().err

    assert warned("nothing") == ""  # there are no nodes yet
    labels = {"lockstep.dev/rack": "r1"}
    put("/api/v1/nodes", {"metadata": {"name": "a", "labels": labels}})
    never = "lockstep: warning: can never start: no node has label"
    assert warned("rack") == f"{never} rack; did you mean lockstep.dev/rack?\n"
    assert warned("islnd") == f"{never} islnd; did you mean island?\n"
    assert warned("galaxy") == f"{never} galaxy\n"
    assert warned("lockstep.dev/rack") == warned("island") == warned("node") == ""


def test_a_class_where_there_is_none(lockstep: Lockstep) -> None:
    said = lockstep("job", "run", "j", "--priority", "high", "--wait", code=2)
    assert "PriorityClass high does not exist; the pods cannot be created; nothing was" in said


@pytest.mark.usefixtures("cluster")
def test_a_task_without_pods_needs_nothing(
    lockstep: Lockstep, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "job.yaml"
    one = lockstep("job", "run", "j", "-i", "x", "-g", "8", "-q", "research", "--dry-run")
    job = yaml.safe_load(one)
    resting = json.loads(json.dumps(job["spec"]["tasks"][0]).replace('"8"', '"16"'))
    job["spec"]["tasks"].append({**resting, "name": "later", "replicas": 0})
    del job["spec"]["minAvailable"]
    manifest.write_text(json.dumps(job))
    assert main(("job", "run", "-f", str(manifest))) == 0
    assert capsys.readouterr().err == ""
