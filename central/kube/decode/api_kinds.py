"""The kinds that are watched, what decodes their objects, and the fact that one is gone. Kinds that refer
to others come after them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from central.kube import resource_paths
from central.kube.decode import (
    batch_decoder,
    device_claim_decoder,
    elastic_object_decoder,
    gang_rules,
    policy_decoder,
    storage_decoder,
)
from central.kube.decode.decoder import Decoder
from central.kube.decode.fields import identified
from central.kube.decode.gang_rules import GangRule
from central.kube.decode.native_podgroup_decoder import composite_gone, native_podgroup_gone
from central.kube.resource_paths import COMPOSITE_PODGROUP, NATIVE_PODGROUP, ResourcePath
from central.model import device_claims, facts, volumes
from central.model.facts import Fact
from central.model.json_types import Json


@dataclass(frozen=True, slots=True)
class Kind:
    resource: ResourcePath
    seen: Callable[[Json], Fact]
    gone: Callable[[Json], Fact]
    optional: bool = False  # the API server may not serve it, as with CRDs
    in_version: "Callable[[str], Kind] | None" = (
        None  # the kind in another version that the API server may serve
    )
    dispensable: bool = False  # without the right to read it, it counts as not installed
    metadata_only: bool = False  # only the metadata is fetched
    namespace: str = ""  # only the objects of this one; "": of all

    @property
    def full_name(self) -> str:
        """Returns the name for messages: pods, jobs.batch.volcano.sh in team-a."""
        inside = f" in {self.namespace}" if self.namespace else ""
        return f"{self.resource.full_name}{inside}"

    @property
    def path(self) -> str:
        """Returns the path of its list."""
        return self.resource.path(self.namespace)


def kinds(
    decoder: Decoder, namespaces: Sequence[str] = (), *, elastic: bool = False
) -> tuple[Kind, ...]:
    """namespaces: those in which the Job controller works; none: in all. elastic: with the sizes of other
    controllers' objects."""
    return (
        _kind("Namespace", decoder.namespace, _by_name(facts.NamespaceGone)),
        _kind("Node", decoder.node, _by_name(facts.NodeGone)),
        _optional("Queue", policy_decoder.decode_queue, _by_name(facts.QueueGone)),
        _kind("PriorityClass", policy_decoder.decode_priority_class, _by_name(facts.PriorityGone)),
        _optional("PodGroup", decoder.podgroup, _in_namespace(facts.GangGone)),
        _native_group(COMPOSITE_PODGROUP, decoder.composite_gang, composite_gone),
        _native_group(NATIVE_PODGROUP, decoder.native_gang, native_podgroup_gone),
        *(_gangs_object(decoder, rule) for rule in decoder.rules),
        _optional("HyperNode", decoder.hypernode, _by_name(facts.HyperNodeGone)),
        *_device_claims(),
        *_storage(),
        _kind("PodDisruptionBudget", policy_decoder.decode_budget, _in_namespace(facts.BudgetGone)),
        *(
            replace(kind, namespace=namespace)
            for kind in job_kinds(decoder)
            for namespace in namespaces or ("",)
        ),
        *_owners(decoder),
        *(_elastic_objects() if elastic else ()),
        _kind("Pod", decoder.pod, _by_uid(facts.PodGone)),
    )


def job_kinds(decoder: Decoder) -> tuple[Kind, ...]:
    """Returns the kinds of the Job controller."""
    return (
        _optional("Job", decoder.job, _in_namespace(facts.JobGone)),
        _optional("Command", batch_decoder.decode_command, _in_namespace(facts.CommandGone)),
        _optional("CronJob", batch_decoder.decode_cronjob, _in_namespace(facts.CronGone)),
        _optional("JobFlow", batch_decoder.decode_jobflow, _in_namespace(facts.FlowGone)),
        _optional(
            "JobTemplate", batch_decoder.decode_job_template, _in_namespace(facts.TemplateGone)
        ),
    )


def kinds_by_name(decoder: Decoder) -> dict[str, Kind]:
    """The kinds that decisions may refer to, by name."""
    watched = {kind.resource: kind for kind in kinds(decoder)}
    by_kind = resource_paths.BY_KIND.items()
    return {name: watched[path] for name, path in by_kind if path in watched}


def _storage() -> tuple[Kind, ...]:
    """Returns the kinds for the volumes of pods."""
    decode = storage_decoder
    return (
        _plain("PersistentVolumeClaim", decode.decode_claim, _in_namespace(volumes.ClaimGone)),
        _plain("PersistentVolume", decode.decode_volume, _by_name(volumes.VolumeGone)),
        _plain("StorageClass", decode.decode_storage_class, _by_name(volumes.StorageClassGone)),
        _plain("CSINode", decode.decode_csi_node, _by_name(volumes.AttachLimits)),
        _plain("CSIDriver", decode.decode_csi_driver, _by_name(volumes.DriverGone)),
        _plain("CSIStorageCapacity", decode.decode_capacity, _in_namespace(volumes.CapacityGone)),
    )


def _device_claims() -> tuple[Kind, ...]:
    """Returns the kinds for device claims. Kubernetes before 1.34 lacks them, and DeviceTaintRules before 1.37."""
    decode, gone = device_claim_decoder, device_claims
    found = (
        _plain("DeviceClass", policy_decoder.decode_device_class, _by_name(facts.DeviceClassSeen)),
        _plain("ResourceSlice", decode.decode_slice, _by_name(gone.SliceGone)),
        _plain("DeviceTaintRule", decode.decode_taint_rule, _by_name(gone.TaintRuleGone)),
        _plain("ResourceClaim", decode.decode_device_claim, _in_namespace(gone.DeviceClaimGone)),
    )
    return tuple(replace(kind, dispensable=True) for kind in found)


def _plain(word: str, seen: Callable[[Json], Fact], gone: Callable[[Json], Fact]) -> Kind:
    """Returns a kind whose decoder raises MalformedObject for any error: its facts have no field for one."""
    return _optional(word, partial(identified, word, seen), gone)


def _native_group(
    resource: ResourcePath,
    seen: Callable[[str, Json], Fact],
    gone: Callable[[Json], Fact],
    version: str = "",
) -> Kind:
    """version: empty: the one of the path."""
    version = version or resource.version
    return Kind(
        replace(resource, version=version),
        partial(seen, version),
        gone,
        optional=True,
        in_version=partial(_native_group, resource, seen, gone),
        dispensable=True,
    )


def _gangs_object(decoder: Decoder, rule: GangRule, version: str = "") -> Kind:
    """A controller's object that makes its pods a gang. version: empty: the one that the rule names."""
    return Kind(
        replace(rule.resource, version=version or rule.resource.version),
        partial(decoder.controllers_gang, rule),
        partial(gang_rules.object_gone, rule),
        optional=True,
        in_version=partial(_gangs_object, decoder, rule),
        dispensable=True,
    )


def _owners(decoder: Decoder) -> tuple[Kind, ...]:
    """Controllers that may make their pods a gang."""
    return tuple(
        Kind(
            resource_paths.BY_GROUP_KIND[group, kind],
            partial(decoder.owner, kind),
            _by_uid(facts.OwnerGone),
            optional=True,
            metadata_only=True,
        )
        for group, kind in (("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("batch", "Job"))
    )


def _elastic_objects() -> tuple[Kind, ...]:
    return tuple(
        Kind(
            resource,
            partial(elastic_object_decoder.decode, kind),
            partial(elastic_object_decoder.gone, kind),
            optional=True,
            dispensable=True,
        )
        for kind, resource in resource_paths.SIZED.items()
    )


def _kind(word: str, seen: Callable[[Json], Fact], gone: Callable[[Json], Fact]) -> Kind:
    return Kind(resource_paths.BY_KIND[word], seen, gone)


def _optional(word: str, seen: Callable[[Json], Fact], gone: Callable[[Json], Fact]) -> Kind:
    return Kind(resource_paths.BY_KIND[word], seen, gone, optional=True)


def _by_name(gone: Callable[[str], Fact]) -> Callable[[Json], Fact]:
    return lambda raw: gone(raw["metadata"]["name"])


def _in_namespace(gone: Callable[[str, str], Fact]) -> Callable[[Json], Fact]:
    return lambda raw: gone(raw["metadata"]["namespace"], raw["metadata"]["name"])


def _by_uid(gone: Callable[[str], Fact]) -> Callable[[Json], Fact]:
    return lambda raw: gone(raw["metadata"]["uid"])
