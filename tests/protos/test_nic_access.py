from dataclasses import replace

from agent.machine.survey import survey
from protos import matrix, nic_access, topology_json
from protos.topology import NodeTopology
from tests.fakes import machines

TOPOLOGY = survey(machines.machine(cards=2))


def with_nics(**changed: object) -> NodeTopology:
    hcas = tuple(replace(hca, **changed) for hca in TOPOLOGY.hcas)  # type: ignore[arg-type]
    return replace(TOPOLOGY, hcas=hcas)


def test_infiniband_needs_nothing() -> None:
    assert list(nic_access.lines(TOPOLOGY)) == []
    assert {nic_access.access(hca, TOPOLOGY) for hca in TOPOLOGY.hcas} == {"any pod"}


def test_roce_needs_an_interface_and_names_it() -> None:
    (line,) = nic_access.lines(with_nics(link_layer="Ethernet", net="eth1"))
    assert line.startswith("  mlx5_0 (eth1), mlx5_1 (eth1), mlx5_2 (eth1): pods with hostNetwork")
    assert "macvlan or ipvlan" in line


def test_a_virtual_function_is_for_one_pod_by_its_address() -> None:
    (line,) = nic_access.lines(with_nics(physical="mlx5_9", pci="0000:e1:00.1"))
    assert "mlx5_0 (0000:e1:00.1)" in line
    assert "one pod" in line


def test_exclusive_namespaces() -> None:
    (line,) = nic_access.lines(replace(TOPOLOGY, rdma_exclusive=True))
    assert line.endswith("others only if a CNI plugin moves the NIC (rdma-cni)")


def test_only_what_is_offered_and_in_both_outputs() -> None:
    roce = with_nics(link_layer="Ethernet", net="eth1")
    offered = replace(roce, hcas=(replace(roce.hcas[0], shares=16), TOPOLOGY.hcas[1], roce.hcas[2]))
    (line,) = nic_access.lines(offered)
    assert line.startswith("  mlx5_0 (eth1): pods with hostNetwork")
    assert f"NICs for pods:\n\n{line}\n" in matrix.table(offered)
    shown = topology_json.to_json("n", offered)["hcas"]
    assert isinstance(shown, list)
    assert [hca["pods"] == "any pod" for hca in shown] == [False, True, False]
    mixed = list(nic_access.lines(replace(offered, hcas=(roce.hcas[0], *TOPOLOGY.hcas[1:]))))
    assert mixed[1] == "  mlx5_1, mlx5_2: any pod"
