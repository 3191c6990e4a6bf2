"""What is watched: where each kind is in the API, how its objects are read, and the fact that one is
gone. In the order in which they are best known: whoever depends on others comes last."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from central.core.facts import (
    BudgetGone,
    CommandGone,
    CronGone,
    Fact,
    FlowGone,
    GangGone,
    HyperNodeGone,
    JobGone,
    NamespaceGone,
    NodeGone,
    OwnerGone,
    PodGone,
    PriorityGone,
    QueueGone,
    TemplateGone,
)
from central.core.filters.volumes import (
    AttachLimits,
    CapacityGone,
    ClaimGone,
    DriverGone,
    StorageClassGone,
    VolumeGone,
)
from central.kube import batch, budgets, flows, queues, storage
from central.kube.objects import Reader

Json = dict[str, Any]

_SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
_BATCH = "/apis/batch.volcano.sh/v1alpha1"
_FLOW = "/apis/flow.volcano.sh/v1alpha1"
_STORAGE = "/apis/storage.k8s.io"


@dataclass(frozen=True, slots=True)
class Kind:
    name: str  # for log lines: pods
    path: str  # /api/v1/pods
    seen: Callable[[Json], Fact]
    gone: Callable[[Json], Fact]
    optional: bool = False  # a CRD that may be missing
    older: "Kind | None" = None  # the same where the API server is too old for this one
    bare: bool = False  # its metadata is enough


def kinds(reader: Reader) -> tuple[Kind, ...]:
    """Namespaces, nodes, what decides whose turn it is, PodGroups, HyperNodes, Jobs, pods."""
    return (
        _kind("/api/v1/namespaces", reader.namespace, _by_name(NamespaceGone)),
        _kind("/api/v1/nodes", reader.node, _by_name(NodeGone)),
        _crd(f"{_SCHEDULING}/queues", queues.queue, _by_name(QueueGone)),
        _kind(
            "/apis/scheduling.k8s.io/v1/priorityclasses", queues.priority, _by_name(PriorityGone)
        ),
        _crd(f"{_SCHEDULING}/podgroups", reader.gang, _in_namespace(GangGone)),
        _crd(
            "/apis/topology.volcano.sh/v1alpha1/hypernodes",
            reader.hypernode,
            _by_name(HyperNodeGone),
        ),
        *_storage(),
        _budgets(),
        _crd(f"{_BATCH}/jobs", reader.job, _in_namespace(JobGone)),
        _crd("/apis/bus.volcano.sh/v1alpha1/commands", batch.command, _in_namespace(CommandGone)),
        _crd(
            f"{_BATCH}/cronjobs",
            batch.cron,
            _in_namespace(CronGone),
            name="cronjobs.batch.volcano.sh",
        ),
        _crd(f"{_FLOW}/jobflows", flows.flow, _in_namespace(FlowGone)),
        _crd(f"{_FLOW}/jobtemplates", flows.template, _in_namespace(TemplateGone)),
        *_owners(reader),
        _kind("/api/v1/pods", reader.pod, _by_uid(PodGone)),
    )


def _budgets() -> Kind:
    gone, name = _in_namespace(BudgetGone), "poddisruptionbudgets"
    older = _crd(f"/apis/policy/v1beta1/{name}", budgets.older, gone)
    return Kind(name, f"/apis/policy/v1/{name}", budgets.budget, gone, older=older)


def _owners(reader: Reader) -> tuple[Kind, ...]:
    """Who may make gangs of their pods. Optional: a box without their controllers does not serve them."""
    return tuple(
        Kind(
            f"{plural}.{group}",
            f"/apis/{group}/v1/{plural}",
            partial(reader.owner, kind),
            _by_uid(OwnerGone),
            optional=True,
            bare=True,
        )
        for group, plural, kind in (
            ("apps", "replicasets", "ReplicaSet"),
            ("apps", "statefulsets", "StatefulSet"),
            ("batch", "jobs", "Job"),
        )
    )


def _storage() -> tuple[Kind, ...]:
    """What pods' volumes depend on. Optional: a box without storage does not serve them."""
    name, gone = "csistoragecapacities", _in_namespace(CapacityGone)
    older = _crd(f"{_STORAGE}/v1beta1/{name}", storage.capacity, gone)
    return (
        _crd("/api/v1/persistentvolumeclaims", storage.claim, _in_namespace(ClaimGone)),
        _crd("/api/v1/persistentvolumes", storage.volume, _by_name(VolumeGone)),
        _crd(f"{_STORAGE}/v1/storageclasses", storage.storage_class, _by_name(StorageClassGone)),
        _crd(f"{_STORAGE}/v1/csinodes", storage.attach_limits, _by_name(AttachLimits)),
        _crd(f"{_STORAGE}/v1/csidrivers", storage.driver, _by_name(DriverGone)),
        Kind(name, f"{_STORAGE}/v1/{name}", storage.capacity, gone, older=older),
    )


def _kind(path: str, seen: Callable[[Json], Fact], gone: Callable[[Json], Fact]) -> Kind:
    return Kind(path.rpartition("/")[2], path, seen, gone)


def _crd(
    path: str, seen: Callable[[Json], Fact], gone: Callable[[Json], Fact], name: str = ""
) -> Kind:
    """One that the API server may not serve."""
    return Kind(name or path.rpartition("/")[2], path, seen, gone, optional=True)


def _by_name(gone: Callable[[str], Fact]) -> Callable[[Json], Fact]:
    return lambda raw: gone(raw["metadata"]["name"])


def _in_namespace(gone: Callable[[str, str], Fact]) -> Callable[[Json], Fact]:
    return lambda raw: gone(raw["metadata"]["namespace"], raw["metadata"]["name"])


def _by_uid(gone: Callable[[str], Fact]) -> Callable[[Json], Fact]:
    return lambda raw: gone(raw["metadata"]["uid"])
