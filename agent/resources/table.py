"""The kinds of devices that this agent serves, one row each.

A new kind needs a module with a DeviceResource and a row here: the service registers a plugin for
each name, and pod-resources is read for the same names."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from agent import other_plugins
from agent.node_state import NodeState
from agent.resources import mig_slice, rdma_nic
from agent.resources.cdi import Injection
from agent.resources.device_files import DeviceFiles
from agent.resources.device_info import DeviceInfoFiles
from agent.resources.device_resource import ContainerKey, DeviceResource
from agent.resources.gpu_resource import RecentAllocation
from agent.resources.gpu_share import GpuShareResource, ShareTerms
from agent.resources.mig_slice import MigSliceResource
from agent.resources.rdma_nic import RdmaNicResource
from agent.resources.whole_gpu import WholeGpuResource
from protos import nic_ids, slicing
from protos.names import GPU, GPU_SHARE, RDMA


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the agent that the kinds use."""

    files: DeviceFiles
    gpus: Injection
    nics: Injection
    shares: ShareTerms
    nic_info: DeviceInfoFiles
    limit_rdma: Callable[[tuple[str, ...], ContainerKey | None], None]
    recent_gpus: RecentAllocation
    recent_nics: RecentAllocation


@dataclass(frozen=True, slots=True)
class DeviceKind:
    serves: Callable[[str], bool]  # whether a resource name is of this kind
    names: Callable[[NodeState], Collection[str]]  # resource names to register for this node
    make: Callable[[str, Services], DeviceResource]


def _named(name: str, make: Callable[[Services], DeviceResource]) -> DeviceKind:
    """A kind with one resource name, registered as soon as it has a device."""
    return DeviceKind(
        serves=lambda other: other == name,
        names=lambda _: (name,),
        make=lambda _, services: make(services),
    )


def _nics(name: str, use: Services) -> RdmaNicResource:
    return RdmaNicResource(
        *(name, use.files.of_nics, use.nics, use.limit_rdma),
        recent_gpus=use.recent_gpus,
        recent=use.recent_nics,
        info=use.nic_info,
    )


KINDS = (
    _named(
        GPU, lambda use: WholeGpuResource(use.files.of, use.gpus, use.recent_gpus, use.files.imex)
    ),
    _named(GPU_SHARE, lambda use: GpuShareResource(use.files.of, use.gpus, use.shares)),
    _named(RDMA, lambda use: _nics(RDMA, use)),
    DeviceKind(serves=nic_ids.is_rail, names=rdma_nic.rails, make=_nics),
    DeviceKind(
        serves=slicing.is_slice,
        names=mig_slice.names,
        make=lambda name, use: MigSliceResource(
            name, use.files.of, use.gpus, use.recent_gpus, use.recent_nics
        ),
    ),
)


def served(name: str) -> bool:
    return any(kind.serves(name) for kind in KINDS)


def is_own(name: str, ids: Collection[str]) -> bool:
    """Returns whether this agent serves the resource and may have allocated the devices."""
    return served(name) and other_plugins.is_own(name, ids)


def names(state: NodeState) -> tuple[str, ...]:
    return tuple(name for kind in KINDS for name in sorted(kind.names(state)))


def make(name: str, services: Services) -> DeviceResource:
    """Raises StopIteration if no kind serves the name."""
    return next(kind for kind in KINDS if kind.serves(name)).make(name, services)
