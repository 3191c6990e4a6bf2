"""The number of shares of each RDMA NIC: a share lets one pod use the NIC. Pure.

Design: docs/design/nics.md
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.nics import selector
from protos.nearest import SHARES
from protos.topology import Hca, NodeTopology, RdmaLimit

NO_LIMIT = RdmaLimit()
MOST = 1000  # shares of a NIC, as --rdma-shares has it; the scheduler refuses reports with more than 1024


@dataclass(frozen=True, slots=True)
class NicPolicy:
    shares: int = 0  # of each NIC; 0: as many pods with the default limit as its limit allows
    default: RdmaLimit = NO_LIMIT  # limit of one pod on each of its NICs
    settable: bool = False  # whether the agent can write limits


def with_shares(topology: NodeTopology, patterns: Sequence[str], policy: NicPolicy) -> NodeTopology:
    """The topology with the number of shares of each NIC; 0 for NICs that no pattern selects."""
    names = {hca.name for hca in selector.served(topology, patterns)}
    limits = dict(topology.rdma_cgroup or ())
    settable = policy.settable and topology.rdma_cgroup is not None

    def count(nic: Hca) -> int:
        if policy.shares or nic.physical:
            return policy.shares or 1  # a virtual function is for one pod
        most, each = limits.get(nic.name, NO_LIMIT), policy.default
        pairs = (most.hca_handle, each.hca_handle), (most.hca_object, each.hca_object)
        counts = [have // one for have, one in pairs if have >= 0 and one > 0]
        return min(*counts, MOST) if counts else SHARES

    return replace(
        topology,
        hcas=tuple(
            replace(hca, shares=count(hca) if hca.name in names else 0) for hca in topology.hcas
        ),
        rdma_settable=settable,
        rdma_default=policy.default if settable else NO_LIMIT,
    )
