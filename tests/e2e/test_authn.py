"""Reports count only from the agent of the node that they speak of."""

import grpc
import pytest

from protos.stubs import fleet_pb2, fleet_pb2_grpc
from tests.e2e.world import NAMESPACE, World, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
REFUSALS = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}


def assert_refused(cluster: World, node: str, token: str) -> str:
    """Reports an empty machine for the node, and returns how that was refused."""

    def refusals() -> list[str]:
        lines = cluster.kubectl("-n", NAMESPACE, "logs", cluster.leader()).splitlines()
        return [line for line in lines if "refused" in line.lower()]

    earlier = len(refusals())
    report = fleet_pb2.NodeReport(node=node, boot_id="stranger", generation=1_000_000)
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    with cluster.channel() as channel, pytest.raises(grpc.RpcError) as caught:
        fleet_pb2_grpc.FleetStub(channel).Report(report, metadata=metadata, timeout=10)
    assert caught.value.code() in REFUSALS, caught.value

    line = until("the scheduler's log line", lambda: refusals()[earlier:], 20)[0]
    assert not token or token not in line
    assert cluster.topologies()[node].gpus, "the node's true report stands"
    return line


def test_a_strangers_report_is_refused_and_logged(cluster: World) -> None:
    """The node is not named: of a stranger's message nothing is read."""
    token = cluster.token("default", namespace="default")
    assert "node-1" not in assert_refused(cluster, "node-1", token)


def test_an_agent_speaks_for_its_own_node_only(cluster: World) -> None:
    token = cluster.token("lockstep-agent", pod=cluster.agent_on("node-2"))
    assert "node-1" in assert_refused(cluster, "node-1", token)


def test_an_agents_account_without_a_pod_is_refused(cluster: World) -> None:
    assert_refused(cluster, "node-1", cluster.token("lockstep-agent"))


def test_without_a_token_nothing_is_taken(cluster: World) -> None:
    assert_refused(cluster, "node-1", "")


def test_the_centre_was_granted_all_that_it_asked_for(cluster: World) -> None:
    """The last of these tests: until now the centre has met everything that it ever asks for."""
    selector = "-lapp.kubernetes.io/name=lockstep-central"
    told = cluster.kubectl("-n", NAMESPACE, "logs", selector, "--tail=-1")
    assert not [line for line in told.splitlines() if "forbidden: User" in line]
