"""The shipped DaemonSet on real kubelets: two machines, registered, reported, allocatable."""

import json

import pytest

from tests.e2e.hardware import CAPTURES
from tests.e2e.world import NAMESPACE, World, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_the_manifests_run_as_shipped(cluster: World) -> None:
    """Applied with `kubectl apply -k`, every pod becomes ready, and none had to start twice before the first test:
    some tests restart them."""
    assert len(cluster.first_starts) == 4
    assert not any(cluster.first_starts.values())


def test_the_agent_has_no_token_of_the_api_server(cluster: World) -> None:
    container = cluster.agent_on("node-1")["spec"]["containers"][0]
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert not any(path.startswith("/var/run/secrets/kubernetes.io") for path in paths)


def test_two_different_machines_register(cluster: World) -> None:
    assert cluster.allocatable() == {"node-1": 8, "node-2": 8}
    seen = cluster.topologies()
    models = {name: {gpu.model for gpu in topology.gpus} for name, topology in seen.items()}
    assert models["node-1"] != models["node-2"]
    for node, capture in (("node-1", "dgx-a100-8"), ("node-2", "hgx-h100-8")):
        captured = json.loads((CAPTURES / f"{capture}.json").read_text())
        text = json.dumps(captured)
        assert all(gpu.uuid in text for gpu in seen[node].gpus), f"{node} is not {capture}"
        assert seen[node].islands == ((0, 1, 2, 3, 4, 5, 6, 7),)
        assert len(seen[node].hcas) >= 8, "the network cards come from the node's own /sys"


def test_the_command_line_shows_what_the_agents_see(cluster: World) -> None:
    """`lockstep topology` in the centre's pod, with the pod's own token."""
    shown = until("an answer", lambda: json.loads(cluster.lockstep("topology", "-o", "json")), 120)
    by_name = {node["node"]: node for node in shown}
    for name, topology in cluster.topologies().items():
        node = by_name[name]
        assert [gpu["uuid"] for gpu in node["gpus"]] == [gpu.uuid for gpu in topology.gpus]
        assert node["links"] == [list(row) for row in topology.links]
        assert node["islands"] == [list(island) for island in topology.islands]
    table = cluster.lockstep("topology", "node-1")
    assert "GPU0" in table
    assert "NV12" in table


def test_an_agent_has_no_rights_on_the_api_server(cluster: World) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:lockstep-agent"
    shown = cluster.kubectl("auth", "can-i", "--list", f"--as={account}", "-n", NAMESPACE)
    granted = [line.split()[0] for line in shown.splitlines()[1:] if not line.startswith(" ")]
    assert set(granted) <= {
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "selfsubjectreviews.authentication.k8s.io",
        "clustertrustbundles.certificates.k8s.io",  # for every ServiceAccount since 1.37
    }
