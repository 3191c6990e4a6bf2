"""What node autoscalers buy for gangs on a cluster without nodes, and what they do not: Karpenter, and the cluster
autoscaler, with their kwok providers.

The cluster autoscaler has no Go module that can be built: CLUSTER_AUTOSCALER names its program, built from ./kwok of
github.com/kubernetes-sigs/cluster-autoscaler (33c3f97b); without it that test is left out.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import pytest
import yaml

from central.model.json_types import Json
from central.standalone.local_cluster import free_port
from central.standalone.pod_status import runs_for_s
from protos.names import GPU, SCHEDULER
from tests.e2e.controllers.gangs import Play
from tests.e2e.controllers.sources import KARPENTER, build
from tests.e2e.controllers.stage import Stage, running_process
from tests.e2e.world import pod
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = [pytest.mark.e2e, pytest.mark.controllers]
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
ZONE, BOUGHT_AS = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
SIZE = {"cpu": "96", "memory": "1Ti", "pods": "110", "ephemeral-storage": "1Ti", GPU: "8"}


class Empty(Stage):
    """Without nodes."""

    def __init__(self) -> None:
        FaultyCluster.__init__(self, [], run_s=runs_for_s, flags=["--agents-wait=0"])
        self._components = ()

    def nodes(self) -> list[Json]:
        """Those that were bought, made ready as kwok does."""
        found: list[Json] = self.get("/api/v1/nodes")["items"]
        for node in found:
            ready = [{"type": "Ready", "status": "True", "reason": "Kwok"}]
            path = f"/api/v1/nodes/{node['metadata']['name']}/status"
            if not any(
                (each["type"], each["status"]) == ("Ready", "True")
                for each in node["status"].get("conditions") or ()
            ):
                self.patch(path, {"status": {"conditions": ready}})
        return found


def instance_types() -> list[Json]:
    """Nodes of 8 GPUs, and nothing else."""
    own = {BOUGHT_AS: "on-demand", ZONE: "z"}
    terms = [{"key": key, "operator": "In", "values": [value]} for key, value in own.items()]
    offering = {"Price": 1.0, "Available": True, "Requirements": terms}
    kind = {"name": "g-8x", "architecture": "amd64", "operatingSystems": ["linux"]}
    return [{**kind, "offerings": [offering], "resources": SIZE}]


def pool() -> list[Json]:
    kind = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
    ref = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    terms = [{"key": BOUGHT_AS, "operator": "In", "values": ["on-demand"]}]
    spec = {"nodeClassRef": ref, "requirements": terms, "expireAfter": "Never"}
    keeps = {"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"}
    meta = {"metadata": {"name": "gpus"}}
    nodes = {"template": {"spec": spec}, "disruption": keeps}
    return [
        {**kind, "metadata": {"name": "default"}, "spec": {}},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **meta, "spec": nodes},
    ]


@contextmanager
def karpenter(stage: Empty) -> Iterator[None]:
    built = build(KARPENTER) / "kwok"
    crds = sorted([*(built / "charts/crds").glob("*"), *(built / "apis/crds").glob("*.yaml")])
    stage.apply_text("---\n".join(each.read_text() for each in crds))
    stage.apply_text(yaml.safe_dump_all(pool()))
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}
    ready = {"type": "Ready", "status": "True", "reason": "Ready", **since}
    stage.patch(f"{CLASSES}/default/status", {"status": {"conditions": [ready]}})
    types = stage.directory / "types.json"
    types.write_bytes(orjson.dumps(instance_types()))
    own = {
        "KUBECONFIG": str(stage.kubeconfig),
        "DISABLE_LEADER_ELECTION": "true",
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "METRICS_PORT": str(free_port()),
        "HEALTH_PROBE_PORT": str(free_port()),
        "SYSTEM_NAMESPACE": "default",
    }
    log = stage.directory / "karpenter.log"
    with running_process([str(built.parent / "manager")], log, {**os.environ, **own}):
        yield


@contextmanager
def cluster_autoscaler(stage: Empty) -> Iterator[None]:
    program = os.environ.get("CLUSTER_AUTOSCALER")
    if not program:
        pytest.skip("CLUSTER_AUTOSCALER names no program")
    counts = {"min": "0", "max": "9", "desired": "0"}
    prefix = "cluster-autoscaler.kwok.nodegroup"
    sizes = {f"{prefix}/{name}-count": value for name, value in counts.items()}
    meta = {"name": "g", "labels": {"kwok-nodegroup": "g"}, "annotations": sizes}
    status = {"capacity": SIZE, "allocatable": SIZE}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}
    settings = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": "kwok-nodegroup"},
        "nodes": {"skipTaint": True},
        "configmap": {"name": "kwok-provider-templates"},
        "kwok": {"install": False},
    }
    data = {
        "kwok-provider-config": {"config": yaml.safe_dump(settings)},
        "kwok-provider-templates": {
            "templates": yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [node]})
        },
    }
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    for name, content in data.items():
        place = {"name": name, "namespace": "default"}
        stage.apply_text(yaml.safe_dump({**kind, "metadata": place, "data": content}))
    config = {"KUBECONFIG": str(stage.kubeconfig), "POD_NAMESPACE": "default"}
    own = {**config, "KWOK_PROVIDER_MODE": "local"}
    argv = [program, "--cloud-provider=kwok", f"--kubeconfig={stage.kubeconfig}", "--v=4"]
    argv += ["--leader-elect=false", "--scan-interval=1s", "--scale-down-enabled=false"]
    argv += ["--namespace=default", f"--address=127.0.0.1:{free_port()}"]
    with running_process(argv, stage.directory / "autoscaler.log", {**os.environ, **own}):
        yield


@pytest.fixture(params=[karpenter, cluster_autoscaler], ids=lambda each: each.__name__)
def empty(request: pytest.FixtureRequest) -> Iterator[Empty]:
    with Empty() as made:
        made.start_all()
        with request.param(made):
            yield made


def condition(play: Play, name: str) -> tuple[str, str]:
    """The reason of the pod's condition, and its nominated node."""
    status = play.stage.get(f"/api/v1/namespaces/{play.namespace}/pods/{name}")["status"]
    conditions = status.get("conditions") or ()
    reasons = [each.get("reason", "") for each in conditions if each["type"] == "PodScheduled"]
    return next(iter(reasons), ""), status.get("nominatedNodeName", "")


def gang(name: str, pods: int, queue: str = "default", **spec: object) -> list[Json]:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": pods, "queue": queue},
    }
    members = [pod(f"{name}-{number}", 8, scheduler=SCHEDULER) for number in range(pods)]
    for each in members:
        each["metadata"].setdefault("annotations", {})["scheduling.k8s.io/group-name"] = name
        each["spec"] |= spec
    return [group, *members]


def runs(play: Play, name: str) -> bool:
    play.stage.nodes()  # type: ignore[attr-defined]  # it is Empty
    found = play.stage.explain(name, play.namespace)
    return found is not None and found.phase == "Running"


def test_what_is_bought(empty: Empty) -> None:
    play = Play(empty, "bought")
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    empty.apply_text(yaml.safe_dump({**kind, "metadata": {"name": "urgent"}, "value": 100}))
    small = {"weight": 1, "capability": {GPU: 8}}
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    empty.apply_text(yaml.safe_dump({**queue, "metadata": {"name": "small"}, "spec": small}))

    play.apply(*gang("train", 4, terminationGracePeriodSeconds=3600))  # no kubelet ends it
    empty.wait("the gang to start", lambda: runs(play, "train"))
    assert len(empty.nodes()) == 4

    # None of these gets a node. The last one gets one, when the autoscaler has read all of them.
    play.apply(*gang("beyond", 2, "small"))
    play.apply(*gang("gated", 1, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]))
    play.apply(*gang("few", 2)[:-1])
    empty.wait("its quota", lambda: condition(play, "beyond-1")[0] == "SchedulerError")
    empty.wait("its gate", lambda: condition(play, "gated-0")[0] == "SchedulingGated")
    empty.wait("its pods", lambda: condition(play, "few-0")[0] == "SchedulerError")
    by: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "tpus"},
    }
    empty.apply_text(yaml.safe_dump({**by, "spec": {"extendedResourceName": "example.com/tpu"}}))
    amounts = {"example.com/tpu": "1"}
    by_class = pod("classed", 0, scheduler=SCHEDULER)
    by_class["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    by_claim = pod("claimed", 0, scheduler=SCHEDULER)
    by_claim["spec"]["containers"][0]["resources"] = {"claims": [{"name": "tpu"}]}
    by_claim["spec"]["resourceClaims"] = [{"name": "tpu", "resourceClaimName": "mine"}]
    play.apply(by_class, by_claim)
    empty.wait("its devices", lambda: "no devices of tpus" in play.reason("classed"))
    empty.wait("its claim", lambda: "ResourceClaim mine does not exist" in play.reason("claimed"))
    empty.wait("its condition", lambda: condition(play, "claimed")[0] == "SchedulerError")
    play.apply(*gang("urgent", 4, priorityClassName="urgent"))
    pods = [f"urgent-{number}" for number in range(4)]
    empty.wait("its victims to leave", lambda: all(condition(play, name)[1] for name in pods))
    assert {condition(play, name)[0] for name in pods} == {"SchedulerError"}
    play.apply(*gang("last", 1))
    empty.wait("its start", lambda: runs(play, "last"))
    assert len(empty.nodes()) == 5
    assert condition(play, "gated-0")[0] == "SchedulingGated"
    assert empty.refusals() == []
