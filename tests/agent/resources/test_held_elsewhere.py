"""Devices in use in ways that the kubelet does not list: by claims, and by pods that it has forgotten."""

from dataclasses import replace

from agent.allocations import Forgotten
from agent.machine.survey import survey
from agent.node_state import NodeState
from agent.resources.cdi import Injection
from agent.resources.device_info import DeviceInfoFiles
from agent.resources.device_resource import DeviceRequest
from agent.resources.gpu_resource import RecentAllocation
from agent.resources.mig_slice import MigSliceResource
from agent.resources.rdma_nic import RdmaNicResource
from protos import nic_ids, slicing
from protos.names import RDMA
from protos.topology import Gpu, NodeTopology, Slice
from tests.fakes import machines
from tests.fakes.claim_kubelet import planned

ENV = Injection("env", "lockstep.dev/gpu", "LOCKSTEP_GPU", None, dict)


def _sliced(index: int) -> Gpu:
    parts = tuple(Slice(f"MIG-{index}{gi}", "1g.5gb", gi, 0, 5) for gi in range(3))
    return Gpu(index, f"GPU-{index}", "m", 8, "", mig=True, slices=parts)


def _chosen(state: NodeState) -> tuple[str, ...]:
    recent = RecentAllocation()
    resource = MigSliceResource("nvidia.com/mig-1g.5gb", lambda _: (), ENV, recent, recent)
    free = tuple(p.uuid for _, p in slicing.of(state.topology) if p.uuid != "MIG-10")
    return resource.preferred(DeviceRequest(free, (), 1), state).device_ids


def test_slices_of_claims_and_of_forgotten_pods_count_as_taken() -> None:
    """A pod gets a slice beside them, so that the other GPU stays free."""
    state = NodeState(topology=NodeTopology(gpus=(_sliced(0), _sliced(1))))
    assert _chosen(state)[0].startswith("MIG-0")
    claim = planned("a", "MIG-10")
    assert _chosen(replace(state, prepared=(claim,)))[0].startswith("MIG-1")
    assert _chosen(replace(state, claims=(claim,)))[0].startswith("MIG-1")
    forgotten = Forgotten("nvidia.com/mig-1g.5gb", ("MIG-10",), "it runs")
    assert _chosen(replace(state, forgotten=(forgotten,)))[0].startswith("MIG-1")


def test_a_nic_of_a_forgotten_pod_is_not_offered() -> None:
    made = survey(machines.machine(1, cards=2))
    topology = replace(made, hcas=tuple(replace(hca, shares=1) for hca in made.hcas))
    (held,) = nic_ids.ids(topology.hcas[0], topology)
    recent, info = RecentAllocation(), DeviceInfoFiles(None)
    resource = RdmaNicResource(
        *(RDMA, lambda _: (), ENV, lambda *_: None), recent_gpus=recent, recent=recent, info=info
    )
    state = NodeState(topology=topology, forgotten=(Forgotten(RDMA, (held,), "it runs"),))
    assert [each.id for each in resource.devices(state) if not each.healthy] == [held]
