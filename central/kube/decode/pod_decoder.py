"""Pods -> facts. Pods made from one template differ in little that matters here: what matters is read
once, and equal pods share one PodSpec object. What this version can't honour is
PodSpec.unsupported, a sentence that begins with the field."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from central.kube.decode import (
    gpu_memory_annotations,
    gpu_model_annotations,
    job_decoder,
    owner_references,
    pod_affinity,
    podspec,
    storage_decoder,
)
from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.kube.decode.times import moment, stamped
from central.kube.decode.topology_constraints import TopologyConstraints
from central.kube.decode.topology_constraints import placement as placement_of
from central.kube.errors import DECODE_ERRORS, FieldError, error_text, text_field
from central.model.facts import PodSeen, PodSpec
from central.model.json_types import Json
from central.model.pod_rules import Labels
from protos import names

_TRAILING_NUMBER = re.compile(r"(\d{1,18})$", re.ASCII)
_RANKS = (
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
    "apps.kubernetes.io/pod-index",
)
_KEPT_SPECS = 50_000
_LIMIT = re.compile(r"0|[1-9]\d{0,9}|max", re.ASCII)  # 010 is 8 to the kernel


class PodDecoder:
    def __init__(self, scheduler_names: Sequence[str], topology: TopologyConstraints) -> None:
        self._ours = frozenset(scheduler_names)
        self._topology = topology
        self._specs_by_content: dict[bytes, PodSpec] = {}
        self._shared_specs: dict[PodSpec, PodSpec] = {}
        self._shared_labels: dict[Labels, Labels] = {}

    def decode(self, raw: Json) -> PodSeen:
        meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        ours = spec.get("schedulerName") in self._ours
        name: str = meta["name"]
        gang, least, owner, owner_name, wrong = (
            owner_references.gang_of(labels, annotations, meta) if ours else ("", None, "", "", "")
        )
        required = preferred = placement = ""
        tier: int | None = None
        if ours and annotations:
            required, preferred, unknown = self._topology.from_annotations(annotations)
            tier, unread = owner_references.tier_of(annotations)
            wrong = wrong or unknown or unread
            placement, unread = placement_of(annotations)
            wrong = wrong or unread
        runs_for_s, unread = _runs_for(annotations)
        wrong = wrong or (unread if ours else "")
        movable = annotations.get(names.MOVABLE, "false")
        if ours and movable not in ("true", "false"):
            wrong = wrong or f'annotation {names.MOVABLE}: "{movable}" is neither true nor false'
        namespace: str = meta["namespace"]
        read = self._spec(spec, ours, namespace, labels)
        limits, unread = _rdma_limits(annotations)
        if limits and not read.rdma_containers:
            unread = f"annotation {names.RDMA_HANDLES}: no container asks for {names.RDMA}"
            limits = ()
        wrong = wrong or (unread if ours else "")
        capped, unread = gpu_memory_annotations.wishes(annotations, read)
        wrong = wrong or (unread if ours else "")
        capped, unread = gpu_model_annotations.wishes(annotations, capped)
        wrong = wrong or (unread if ours else "")
        read = self._shared(capped) if capped != read else read
        if wrong or limits:
            unsupported = wrong or read.unsupported
            read = _limited(replace(read, unsupported=unsupported), limits)
            read = self._shared(read)
        return PodSeen(
            uid=meta["uid"],
            namespace=namespace,
            name=name,
            spec=read,
            node=text_field(spec, "nodeName"),
            phase=text_field(status, "phase") or "Pending",
            ours=ours,
            gang=gang,
            gang_min=least,
            gated=bool(spec.get("schedulingGates")),
            deleting="deletionTimestamp" in meta,
            priority=int(spec.get("priority") or 0),
            created=stamped(meta.get("creationTimestamp")),
            order=(_rank(name, labels, annotations), name),
            task=text_field(annotations, names.TASK) or text_field(labels, names.TASK),
            topology_required=required,
            topology_preferred=preferred,
            placement=placement,
            runs_for_s=runs_for_s,
            started=stamped(status.get("startTime")) or None,
            checkpoint=moment(annotations.get(names.CHECKPOINT)),
            preempts=spec.get("preemptionPolicy") != "Never",
            labels=self.labels(labels),
            queue=text_field(annotations, names.QUEUE_NAME) if ours and annotations else "",
            claims=storage_decoder.claim_names(name, spec) if spec.get("volumes") else (),
            part=job_decoder.decode_job_member(meta, status)
            if meta.get("ownerReferences")
            else None,
            required_tier=tier,
            owner=owner,
            owner_name=owner_name,
            movable=ours and movable == "true",
        )

    def _spec(self, spec: Json, ours: bool, namespace: str, labels: Json) -> PodSpec:
        """Pods made from one template differ in little that matters here: parse what matters once."""
        try:
            matters = _what_matters(spec, ours)
            if parts := pod_affinity.rule_sources(spec, ours):
                own = [labels.get(key) for key in pod_affinity.label_keys(parts)]
                matters += (parts, namespace, own, bool(spec.get("hostNetwork")))
            key = orjson.dumps(matters)
            known = self._specs_by_content.get(key)
            if known is None:
                if len(self._specs_by_content) >= _KEPT_SPECS:
                    self._specs_by_content.clear()
                    self._shared_specs.clear()
                known = self._specs_by_content[key] = self._shared(
                    podspec.decode_pod_spec(
                        spec,
                        ours,
                        pod_affinity.decode_pod_rules(spec, ours, namespace, labels)
                        if parts
                        else None,
                    )
                )
        except FieldError as error:
            known = PodSpec(requests=(("pods", 1),), unsupported=str(error))
        except DECODE_ERRORS as error:
            known = PodSpec(requests=(("pods", 1),), unsupported=f"spec: {error_text(error)}")
        return known

    def _shared(self, spec: PodSpec) -> PodSpec:
        return self._shared_specs.setdefault(spec, spec)

    def labels(self, labels: Json) -> Labels:
        """Equal ones share one object."""
        found = tuple(sorted(labels.items()))
        if len(self._shared_labels) >= _KEPT_SPECS:
            self._shared_labels.clear()
        return self._shared_labels.setdefault(found, found)


def _what_matters(spec: Json, ours: bool) -> list[Any]:
    get = spec.get
    matters: list[Any] = [ours, [_slim(c) for c in get("containers") or ()]]
    if inits := get("initContainers"):
        matters.append([_slim(c) for c in inits])
    matters += ("overhead", get("overhead"))
    if ours:
        matters += (
            get("nodeSelector"),
            get("affinity"),
            get("tolerations"),
            get("topologySpreadConstraints"),
            bool(get("resourceClaims")),
            bool(get("hostNetwork")),
        )
    return matters


def _slim(container: Json) -> list[Any]:
    get = container.get
    return [get("name"), get("resources"), get("ports"), get("restartPolicy")]


def _rdma_limits(annotations: Json) -> tuple[tuple[tuple[str, int], ...], str]:
    """The limits that a pod wishes of each of its HCAs, by the kernel's names, and what is wrong."""
    found = []
    for key, name in (("hca_handle", names.RDMA_HANDLES), ("hca_object", names.RDMA_OBJECTS)):
        told = annotations.get(name)
        if told is None:
            continue
        if not _LIMIT.fullmatch(str(told)) or (told != "max" and int(told) >= 2**31 - 1):
            return (), f'annotation {name}: "{told}" is neither a whole number nor max'
        found.append((key, -1 if told == "max" else int(told)))
    return tuple(found), ""


def _limited(spec: PodSpec, limits: tuple[tuple[str, int], ...]) -> PodSpec:
    """Limits hold for each card; a pod may have as many cards as shares. What it may take of them is
    asked for like any other resource."""
    cards = sum(count for _, count in spec.rdma_containers)
    wished = {key: limit * cards for key, limit in limits if limit > 0}
    requests = tuple(sorted({**dict(spec.requests), **wished}.items()))
    return replace(spec, requests=requests, rdma_limits=limits)


def _runs_for(annotations: Json) -> tuple[float | None, str]:
    """How long the pod says that it runs, and what is wrong with that."""
    if not (told := annotations.get(names.RUNS_FOR)):
        return None, ""
    try:
        return parse_duration(str(told)), ""
    except InvalidQuantity as error:
        return None, f"annotation {names.RUNS_FOR}: {error}"


def _rank(name: str, labels: Json, annotations: Json) -> int:
    for key in _RANKS:
        index = annotations.get(key) or labels.get(key)
        if index and index.isascii() and index.isdigit():
            return int(index[:18])
    match = _TRAILING_NUMBER.search(name)
    return int(match[1]) if match else 0
