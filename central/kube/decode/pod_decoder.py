"""Pods as facts.

Ten thousand pods come from a few hundred templates, so the part of the spec that scheduling needs is
decoded once per distinct content, and equal pods share one PodSpec and one tuple of labels. What this
version can't honour is PodSpec.unsupported, a sentence that begins with the field.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import orjson

from central.kube.decode import (
    device_claim_decoder,
    fields,
    gang_annotations,
    job_decoder,
    pod_affinity,
    pod_annotations,
    pod_starts,
    podspec,
    storage_decoder,
)
from central.kube.decode.effective_requests import pod_status_content
from central.kube.decode.fields import DECODE_ERRORS, FieldError, FirstError
from central.kube.decode.gang_rules import WELL_KNOWN, GangRule
from central.kube.decode.node_features import needed_features
from central.kube.decode.quantities import lenient_time, parse_time
from central.kube.decode.topology_constraints import TopologyConstraints
from central.model import limits, native_podgroup
from central.model.facts import PodSeen, PodSpec
from central.model.json_types import Json
from central.model.phases import ENDED
from central.model.pod_rules import Labels
from protos import names

_TRAILING_NUMBER = re.compile(r"(\d{1,18})$", re.ASCII)
_INDEX_KEYS = (
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "training.kubeflow.org/replica-index",
    "apps.kubernetes.io/pod-index",
)
_CACHED_MOST = 50_000


class PodDecoder:
    def __init__(
        self,
        scheduler_names: Sequence[str],
        topology: TopologyConstraints,
        rules: Sequence[GangRule] = WELL_KNOWN,
    ) -> None:
        self._rules = rules
        self._ours = frozenset(scheduler_names)
        self._annotations = pod_annotations.PodAnnotations(topology)
        self._specs_by_content: dict[bytes, PodSpec] = {}  # by a digest
        self._shared_specs: dict[PodSpec, PodSpec] = {}
        self._shared_labels: dict[Labels, Labels] = {}

    def decode(self, raw: Json) -> PodSeen:
        """Raises DECODE_ERRORS."""
        meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
        annotations = meta.get("annotations") or {}
        ours = spec.get("schedulerName") in self._ours
        namespace, name, uid = fields.identity(meta)
        if not uid:
            raise KeyError("uid")
        errors = FirstError()
        labels = _labels(meta, errors)
        given = self._annotations.fields(annotations, ours, errors)
        given["task"] = _text(annotations, names.TASK, errors) or _text(labels, names.TASK, errors)
        if ours:
            given |= self._own_fields(raw, labels, annotations, errors, given["task"])
        decoded = self._spec(spec, status, ours, namespace, labels)
        volumes = spec.get("volumes")
        claims = errors.read((), storage_decoder.claim_names, name, spec) if volumes else ()
        if ours and (spec.get("resourceClaims") or status.get("extendedResourceClaimStatus")):
            reader = device_claim_decoder.pod_device_claims
            given["device_claims"] = errors.read((), reader, spec, status)
        if ours and not decoded.unsupported:
            given |= errors.read({}, pod_starts.start_fields, spec, status)
        return PodSeen(
            uid=uid,
            namespace=namespace,
            name=name,
            spec=self._annotated(decoded, annotations, ours, errors),
            node=fields.text(spec, "nodeName", limits.NAME),
            phase=fields.text(status, "phase") or "Pending",
            ours=ours,
            gated=bool(gates := spec.get("schedulingGates")),
            gates=errors.read((), _gate_names, spec) if gates and ours else (),
            deleting="deletionTimestamp" in meta,
            priority=fields.whole(spec.get("priority")),
            created=parse_time(meta.get("creationTimestamp")),
            order=(_index(name, labels, annotations), name),
            started=parse_time(status.get("startTime")) or None,
            ended=_ended(meta, status),
            checkpoint=lenient_time(annotations.get(names.CHECKPOINT)),
            preempts=spec.get("preemptionPolicy") != "Never",
            labels=self.labels(labels),
            claims=claims,
            part=job_decoder.decode_job_member(meta, status),
            grace_s=fields.whole(spec.get("terminationGracePeriodSeconds")) if ours else 0,
            told=_told(status) if ours and not spec.get("nodeName") else ("", ""),
            **given,
        )

    def _own_fields(
        self, raw: Json, labels: Json, annotations: Json, errors: FirstError, task: str
    ) -> Json:
        """The fields of PodSeen that only this scheduler's pods have. task: as the pod itself says."""
        gang, least, owner, owner_name = gang_annotations.gang_of(labels, raw, self._rules, errors)
        found: Json = {"gang": gang, "gang_min": least, "owner": owner, "owner_name": owner_name}
        if native_podgroup.is_native(gang):
            found["podgroup"] = native_podgroup.podgroup_name(gang)
        if names.PREEMPTABLE in annotations or names.PREEMPTABLE in labels:
            found["preemptable"] = pod_annotations.preemptable(labels, annotations, errors)
        if gang and not task:
            found["task"] = _role(self._rules, gang, labels, owner_name)
        found["tied"] = errors.read(False, _is_tied, raw)
        found["queue"] = _text(annotations, names.QUEUE_NAME, errors)
        found["service_account"] = fields.text(raw["spec"], "serviceAccountName", limits.NAME)
        found["user"] = fields.text(annotations, names.USER, limits.TEXT)
        return found

    def _annotated(
        self, spec: PodSpec, annotations: Json, ours: bool, errors: FirstError
    ) -> PodSpec:
        """The spec with what the annotations change in it, and the first error of all."""
        changed = pod_annotations.apply_to_spec(annotations, spec, errors)
        if errors.message and ours:  # the owner of another scheduler's pod would not see it
            changed = replace(changed, unsupported=errors.message)
        return spec if changed is spec else self._shared(changed)

    def _spec(self, spec: Json, status: Json, ours: bool, namespace: str, labels: Json) -> PodSpec:
        """The spec without its annotations. Never raises: errors are its `unsupported`."""
        try:
            return self._spec_of(spec, status, ours, namespace, labels)
        except FieldError as error:
            return _refused(spec, status, str(error))
        except DECODE_ERRORS as error:
            why = fields.described(
                error, self._spec_of, spec, status, ours, namespace, labels, prefix="spec"
            )
            return _refused(spec, status, why)

    def _spec_of(
        self, spec: Json, status: Json, ours: bool, namespace: str, labels: Json
    ) -> PodSpec:
        """Raises DECODE_ERRORS."""
        content = _scheduling_content(spec, status, ours)
        if rule_parts := pod_affinity.rule_sources(spec, ours):
            own_labels = [labels.get(key) for key in pod_affinity.label_keys(rule_parts)]
            content += (rule_parts, namespace, own_labels, bool(spec.get("hostNetwork")))
        text = orjson.dumps(content)
        key = blake2b(text, digest_size=20).digest()
        known = self._specs_by_content.get(key)
        if known is None:
            if len(self._specs_by_content) >= _CACHED_MOST:
                self._specs_by_content.clear()
                self._shared_specs.clear()
            rules = (
                pod_affinity.decode_pod_rules(spec, ours, namespace, labels) if rule_parts else None
            )
            made = podspec.decode_pod_spec(spec, ours, rules, status)
            # A field's own limit says more, and a pod that runs is counted whatever its size.
            if len(text) > limits.POD_TEXT and not (made.unsupported or spec.get("nodeName")):
                raise FieldError(
                    f"spec: the parts that scheduling reads have {len(text)} characters; "
                    f"at most {limits.POD_TEXT} are accepted"
                )
            known = self._specs_by_content[key] = self._shared(made)
        return known

    def _shared(self, spec: PodSpec) -> PodSpec:
        return self._shared_specs.setdefault(spec, spec)

    def labels(self, labels: Json) -> Labels:
        """Equal labels share one tuple."""
        found = tuple(sorted(labels.items()))
        if len(self._shared_labels) >= _CACHED_MOST:
            self._shared_labels.clear()
        return self._shared_labels.setdefault(found, found)


def _refused(spec: Json, status: Json, why: str) -> PodSpec:
    """Another scheduler, or a user, may have bound it all the same: what it takes is counted."""
    try:
        requests = podspec.requests(spec, status)
    except DECODE_ERRORS:
        requests = (("pods", 1),)
    return PodSpec(requests=requests, unsupported=why)


def _scheduling_content(spec: Json, status: Json, ours: bool) -> list[Any]:
    get = spec.get
    content: list[Any] = [ours, [_container_content(c) for c in get("containers") or ()]]
    if inits := get("initContainers"):
        content.append([_container_content(c) for c in inits])
    content += ("overhead", get("overhead"), get("resources"))
    reported = status.get("containerStatuses") or status.get("initContainerStatuses")
    if (reported or get("resources")) and (resized := pod_status_content(spec, status)):
        content.append(resized)
    if ours:
        content += (
            get("nodeSelector"),
            get("affinity"),
            get("tolerations"),
            get("topologySpreadConstraints"),
            bool(get("hostNetwork")),
        )
        if needed := needed_features(spec):
            content.append(needed)
    return content


def _container_content(container: Json) -> list[Any]:
    get = container.get
    return [get("name"), get("resources"), get("restartPolicy")]


def _told(status: Json) -> tuple[str, str]:
    """The reason of the pod's condition PodScheduled while it is False, and nominatedNodeName."""
    reasons = (
        fields.text(one, "reason", limits.NAME)
        for one in status.get("conditions") or ()
        if one.get("type") == "PodScheduled" and one.get("status") == "False"
    )
    return next(reasons, ""), fields.text(status, "nominatedNodeName", limits.NAME)


def _is_tied(raw: Json) -> bool:
    """Returns whether the pod's replacement runs on the same node or nowhere: a DaemonSet's, a static pod, or one that
    selects a host."""
    meta, selector = raw["metadata"], raw["spec"].get("nodeSelector")
    _, owner = gang_annotations.controller_of(meta)
    static = names.MIRROR in (meta.get("annotations") or {})
    return (
        static
        or owner.startswith("daemonset/")
        or (isinstance(selector, dict) and names.HOSTNAME in selector)
    )


def _role(rules: Sequence[GangRule], gang: str, labels: Json, owner: str) -> str:
    """Returns the role that the label of the gang's rule names; labels were checked to be texts."""
    for rule in rules:
        if rule.role and rule.gang_of(labels, owner) == gang:
            return str(next(filter(None, map(labels.get, rule.role)), ""))[: limits.NAME]
    return ""


def _gate_names(spec: Json) -> tuple[str, ...]:
    found = fields.entries(spec, "schedulingGates", "spec", limits.TOLERATIONS)
    return tuple(fields.text(gate, "name", limits.NAME) for gate in found)


def _ended(meta: Json, status: Json) -> float | None:
    """Returns when the last of its containers ended, if all have, or when its deletion was requested if that is
    earlier."""
    times = []
    if status.get("phase") in ENDED:
        states = [each.get("state") or {} for each in status.get("containerStatuses") or ()]
        ends = [(state.get("terminated") or {}).get("finishedAt") for state in states]
        times = [max(map(parse_time, ends), default=0.0)]
    if (deleted := parse_time(meta.get("deletionTimestamp"))) > 0:
        times.append(deleted - fields.whole(meta.get("deletionGracePeriodSeconds")))
    return min((time for time in times if time > 0), default=None)


def _labels(meta: Json, errors: FirstError) -> Json:
    """Returns the labels; empty, with an error, if they cannot be read."""
    labels: Json = meta.get("labels") or {}
    if len(labels) <= limits.LABELS and all(type(each) is str for each in labels.values()):
        size = sum(map(len, labels)) + sum(map(len, labels.values()))
        if size <= limits.LABELS_TEXT:
            return labels
        most = f"at most {limits.LABELS_TEXT} are accepted"
        errors.add(FieldError(f"metadata.labels: {size} characters; {most}"))
        return {}
    errors.read({}, fields.labels, meta, "labels", "metadata", limits.LABELS)
    return {}


def _text(part: Json, key: str, errors: FirstError) -> str:
    """A name that a label or annotation gives; empty, with an error, if it is none."""
    return errors.read("", fields.text, part, key, limits.NAME) if key in part else ""


def _index(name: str, labels: Json, annotations: Json) -> int:
    """The pod's index in its gang: from its controller, else the number at the end of its name."""
    for key in _INDEX_KEYS:
        index = annotations.get(key) or labels.get(key)
        if index and index[:18].isascii() and index[:18].isdigit():
            return int(index[:18])
    match = _TRAILING_NUMBER.search(name)
    return int(match[1]) if match else 0
