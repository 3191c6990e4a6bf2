"""The decoder for a scheduler with given names and network tree: raw Kubernetes JSON as facts. Pure; raises
MalformedObject only.

An object with a field that this version can't honour is a fact all the same, with the reason in
PodSpec.unsupported or in the fact's `error`.
"""

from collections.abc import Sequence

from central.kube.decode import (
    fields,
    gang_annotations,
    gang_rules,
    hypernode_decoder,
    job_decoder,
    native_podgroup_decoder,
    podgroup_decoder,
)
from central.kube.decode.effective_requests import bounded, resource_amounts
from central.kube.decode.fields import DECODE_ERRORS, MalformedObject
from central.kube.decode.gang_rules import WELL_KNOWN, GangRule
from central.kube.decode.node_features import declared_features
from central.kube.decode.pod_decoder import PodDecoder
from central.kube.decode.topology_constraints import TopologyConstraints
from central.model import facts, limits
from central.model.json_types import Json
from protos import names


class Decoder:
    def __init__(
        self, scheduler_names: Sequence[str], levels: Sequence[str], rules: Sequence[GangRule] = ()
    ) -> None:
        """levels: the tree's node label keys, widest first. rules: of controllers that are not well-known; they go
        first."""
        self.rules = (*rules, *WELL_KNOWN)
        self._default_scheduler = next(iter(scheduler_names), names.SCHEDULER)
        self._topology = TopologyConstraints(levels)
        self._pods = PodDecoder(scheduler_names, self._topology, self.rules)

    def pod(self, raw: Json) -> facts.PodSeen:
        try:  # a context manager would cost a twentieth of the time
            return self._pods.decode(raw)
        except DECODE_ERRORS as error:
            raise MalformedObject(
                f"pod {fields.object_name(raw)}: {fields.described(error, self._pods.decode, raw)}"
            ) from error

    def node(self, raw: Json) -> facts.NodeSeen:
        return fields.identified("node", _node, raw)

    def namespace(self, raw: Json) -> facts.NamespaceSeen:
        return fields.identified("namespace", self._namespace, raw)

    def _namespace(self, raw: Json) -> facts.NamespaceSeen:
        meta = raw["metadata"]
        _, name, _ = fields.identity(meta, namespaced=False)
        labels = self._pods.labels(fields.labels(meta, "labels", "metadata", limits.LABELS))
        queue = (meta.get("annotations") or {}).get(names.QUEUE_NAME)
        if not isinstance(queue, str) or len(queue) > limits.NAME:
            queue = ""
        return facts.NamespaceSeen(name, labels, queue)

    def podgroup(self, raw: Json) -> facts.GangSeen | facts.GangGone:
        """GangGone: the scheduler wrote the PodGroup itself, and it is no gang."""
        meta = podgroup_decoder.written_for_tools(raw)
        return facts.GangGone(*meta) if meta is not None else self.gang(raw)

    def gang(self, raw: Json) -> facts.GangSeen:
        return podgroup_decoder.decode_podgroup(raw, self._topology)

    def native_gang(self, version: str, raw: Json) -> facts.GangSeen:
        """version: of scheduling.k8s.io."""
        return native_podgroup_decoder.decode_native_podgroup(version, raw, self._topology)

    def composite_gang(self, version: str, raw: Json) -> facts.GangSeen:
        """version: of scheduling.k8s.io."""
        decode = native_podgroup_decoder.decode_native_podgroup
        return decode(version, raw, self._topology, composite=True)

    def controllers_gang(self, rule: GangRule, raw: Json) -> facts.GangSeen:
        return gang_rules.decode_object(rule, raw, self._topology)

    def job(self, raw: Json) -> facts.JobSeen:
        return job_decoder.decode_job(raw, self._default_scheduler)

    def owner(self, kind: str, raw: Json) -> facts.OwnerSeen:
        return gang_annotations.decode_owner(kind, raw, self._topology.levels)

    def hypernode(self, raw: Json) -> facts.HyperNodeSeen:
        return hypernode_decoder.decode_hypernode(raw)


def _node(raw: Json) -> facts.NodeSeen:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    _, name, _ = fields.identity(meta, namespaced=False)
    allocatable = fields.mapping(status, "allocatable", "status", limits.RESOURCES)
    amounts = resource_amounts(allocatable, "status.allocatable")
    return facts.NodeSeen(
        name=name,
        labels=fields.labels(meta, "labels", "metadata", limits.LABELS),
        allocatable={resource: bounded(resource, amounts[resource]) for resource in amounts},
        taints=tuple(
            facts.Taint(
                fields.text(taint, "key"), fields.text(taint, "value"), fields.text(taint, "effect")
            )
            for taint in fields.entries(spec, "taints", "spec", limits.TOLERATIONS)
        ),
        unschedulable=bool(spec.get("unschedulable")),
        features=declared_features(status),
        ready=any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        ),
    )
