"""Raw Kubernetes JSON -> facts. Pure: no I/O, and nothing is raised but Malformed.

An object that this version can't honour is a fact all the same: PodSpec.unsupported and
GangSeen.error are sentences that begin with the field.

Tiers of a PodGroup's networkTopology, without HyperNodes: tier 1 is the narrowest level of the tree
(a rack), 2 the next wider, and so on; 0 is one node. A tier wider than the tree asks for nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import combinations
from typing import Any

import orjson

from central.core.facts import (
    Amounts,
    GangSeen,
    HyperNodeSeen,
    JobSeen,
    Member,
    NamespaceSeen,
    NodeSeen,
    OwnerSeen,
    PodSeen,
    PodSpec,
    Roles,
    SubGroups,
    Taint,
)
from central.core.filters.rules import Labels
from central.kube import gpumemory, jobs, owners, podrules, podspec, storage
from central.kube.errors import BROKEN, Malformed, Unreadable, text, what, who
from central.kube.quantities import NotAQuantity, seconds
from protos import names

Json = dict[str, Any]

_TRAILING_NUMBER = re.compile(r"(\d{1,18})$", re.ASCII)
_RANKS = (
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
    "apps.kubernetes.io/pod-index",
)
_KEPT_SPECS = 50_000
_LIMIT = re.compile(r"0|[1-9]\d{0,9}|max", re.ASCII)  # 010 is 8 to the kernel


class Reader:
    """Reads objects as this centre understands them; equal pods share one PodSpec object."""

    def __init__(self, scheduler_names: Sequence[str], levels: Sequence[str]) -> None:
        """levels: the tree's node label keys, widest first."""
        self._ours = frozenset(scheduler_names)
        self._first = next(iter(scheduler_names), names.SCHEDULER)
        self._levels = tuple(levels)
        self._closeness = frozenset((*levels, names.NODE, names.NUMA, names.ISLAND))
        self._specs: dict[bytes, PodSpec] = {}
        self._alike: dict[PodSpec, PodSpec] = {}
        self._same_labels: dict[Labels, Labels] = {}

    def pod(self, raw: Json) -> PodSeen:
        try:
            return self._pod(raw)
        except BROKEN as error:
            raise Malformed(f"pod {who(raw)}: {what(error)}") from error

    def node(self, raw: Json) -> NodeSeen:
        try:
            return _node(raw)
        except BROKEN as error:
            raise Malformed(f"node {who(raw)}: {what(error)}") from error

    def namespace(self, raw: Json) -> NamespaceSeen:
        try:
            meta = raw["metadata"]
            labels = self._labels_of(meta.get("labels") or {})
            queue = (meta.get("annotations") or {}).get(names.QUEUE_NAME)
            return NamespaceSeen(meta["name"], labels, queue if isinstance(queue, str) else "")
        except BROKEN as error:
            raise Malformed(f"namespace {who(raw)}: {what(error)}") from error

    def gang(self, raw: Json) -> GangSeen:
        try:
            meta = raw["metadata"]
            namespace, name = meta["namespace"], meta["name"]
            seen = GangSeen(namespace, name, 1, uid=meta.get("uid", ""))
        except BROKEN as error:
            raise Malformed(f"PodGroup {who(raw)}: {what(error)}") from error
        try:
            return self._gang(raw, seen)
        except BROKEN as error:
            return replace(seen, error=what(error))

    def job(self, raw: Json) -> JobSeen:
        return jobs.job(raw, self._first)

    def _pod(self, raw: Json) -> PodSeen:
        meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
        labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
        ours = spec.get("schedulerName") in self._ours
        name: str = meta["name"]
        gang, least, owner, owner_name, wrong = (
            owners.gang_of(labels, annotations, meta) if ours else ("", None, "", "", "")
        )
        required = preferred = placement = ""
        tier: int | None = None
        if ours and annotations:
            required, preferred, unknown = self._wishes(annotations)
            tier, unread = owners.tier_of(annotations)
            wrong = wrong or unknown or unread
            placement, unread = _placement(annotations)
            wrong = wrong or unread
        runs_for_s, unread = _runs_for(annotations)
        wrong = wrong or (unread if ours else "")
        namespace: str = meta["namespace"]
        read = self._spec(spec, ours, namespace, labels)
        limits, unread = _rdma_limits(annotations)
        if limits and not read.rdma_containers:
            unread = f"annotation {names.RDMA_HANDLES}: no container asks for {names.RDMA}"
            limits = ()
        wrong = wrong or (unread if ours else "")
        capped, unread = gpumemory.wishes(annotations, read)
        wrong = wrong or (unread if ours else "")
        read = self._alike_of(capped) if capped != read else read
        if wrong or limits:
            unsupported = wrong or read.unsupported
            read = _limited(replace(read, unsupported=unsupported), limits)
            read = self._alike_of(read)
        return PodSeen(
            uid=meta["uid"],
            namespace=namespace,
            name=name,
            spec=read,
            node=text(spec, "nodeName"),
            phase=text(status, "phase") or "Pending",
            ours=ours,
            gang=gang,
            gang_min=least,
            gated=bool(spec.get("schedulingGates")),
            deleting="deletionTimestamp" in meta,
            priority=int(spec.get("priority") or 0),
            created=_seconds(meta.get("creationTimestamp")),
            order=(_rank(name, labels, annotations), name),
            task=text(annotations, names.TASK) or text(labels, names.TASK),
            topology_required=required,
            topology_preferred=preferred,
            placement=placement,
            runs_for_s=runs_for_s,
            started=_seconds(status.get("startTime")) or None,
            checkpoint=_moment(annotations.get(names.CHECKPOINT)),
            preempts=spec.get("preemptionPolicy") != "Never",
            labels=self._labels_of(labels),
            queue=text(annotations, names.QUEUE_NAME) if ours and annotations else "",
            claims=storage.claims_of(name, spec) if spec.get("volumes") else (),
            part=jobs.part(meta, status) if meta.get("ownerReferences") else None,
            required_tier=tier,
            owner=owner,
            owner_name=owner_name,
            movable=ours and annotations.get(names.MOVABLE) == "true",
        )

    def _spec(self, spec: Json, ours: bool, namespace: str, labels: Json) -> PodSpec:
        """Pods made from one template differ in little that matters here: parse what matters once."""
        try:
            matters = _what_matters(spec, ours)
            if parts := podrules.asks(spec, ours):
                own = [labels.get(key) for key in podrules.label_keys(parts)]
                matters += (parts, namespace, own, bool(spec.get("hostNetwork")))
            key = orjson.dumps(matters)
            known = self._specs.get(key)
            if known is None:
                if len(self._specs) >= _KEPT_SPECS:
                    self._specs.clear()
                    self._alike.clear()
                known = self._specs[key] = self._alike_of(
                    podspec.read(
                        spec,
                        ours,
                        podrules.read(spec, ours, namespace, labels) if parts else None,
                    )
                )
        except Unreadable as error:
            known = PodSpec(requests=(("pods", 1),), unsupported=str(error))
        except BROKEN as error:
            known = PodSpec(requests=(("pods", 1),), unsupported=f"spec: {what(error)}")
        return known

    def _alike_of(self, spec: PodSpec) -> PodSpec:
        return self._alike.setdefault(spec, spec)

    def _labels_of(self, labels: Json) -> Labels:
        """Equal ones share one object."""
        found = tuple(sorted(labels.items()))
        if len(self._same_labels) >= _KEPT_SPECS:
            self._same_labels.clear()
        return self._same_labels.setdefault(found, found)

    def _wishes(self, annotations: Json) -> tuple[str, str, str]:
        """The closeness that annotations require and prefer, and what is wrong with them."""
        required = text(annotations, names.TOPOLOGY_REQUIRED)
        preferred = text(annotations, names.TOPOLOGY_PREFERRED)
        for key, value in (
            (names.TOPOLOGY_REQUIRED, required),
            (names.TOPOLOGY_PREFERRED, preferred),
        ):
            if value and value not in self._closeness:
                return "", "", f'annotation {key}: "{value}" is not one of {self._choices()}'
        return required, preferred, ""

    def _choices(self) -> str:
        return ", ".join((*self._levels, names.NODE, names.NUMA, names.ISLAND))

    def _gang(self, raw: Json, seen: GangSeen) -> GangSeen:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        meta = raw["metadata"]
        least = spec.get("minMember", 1)
        error = ""
        if isinstance(least, bool) or not isinstance(least, int) or least < 0:
            error, least = f"spec.minMember: {least!r} is not a whole number", 1
        tasks, unread = _task_minimums(spec.get("minTaskMember") or {})
        error = error or unread
        wish = spec.get("networkTopology") or {}
        level, tier, wrong = self._network_topology(wish, "spec.networkTopology")
        soft, soft_tier = "", None
        if wish.get("mode") == "soft":
            soft, soft_tier, level, tier = level, tier, "", None
        subgroups, unread = self._subgroups(spec.get("subGroupPolicy") or ())
        wrong = wrong or unread
        required, preferred, unknown = self._wishes(meta.get("annotations") or {})
        roles, unread = _roles(meta.get("annotations") or {})
        if roles is not None and subgroups:
            unread = f"annotation {names.TASK_NEAR}: not together with spec.subGroupPolicy yet"
        wrong = wrong or unread
        placement, unread = _placement(meta.get("annotations") or {})
        if placement == names.SPREAD and subgroups:
            unread = f"annotation {names.PLACEMENT}: not together with spec.subGroupPolicy yet"
        wrong = wrong or unread
        conditions = status.get("conditions") or ()
        return replace(
            seen,
            min_member=max(1, least),
            task_min=tasks,
            queue=text(spec, "queue") or "default",
            topology_required=required or level,
            topology_preferred=preferred or soft,
            required_tier=tier,
            preferred_tier=soft_tier,
            created=_seconds(meta.get("creationTimestamp")),
            error=error or wrong or unknown,
            phase=text(status, "phase"),
            priority_class=text(spec, "priorityClassName"),
            min_resources=_min_resources(spec.get("minResources")),
            reason=text(conditions[-1], "message") if conditions else "",
            subgroups=subgroups,
            roles=roles,
            placement=placement,
        )

    def _subgroups(self, policies: Sequence[Json]) -> tuple[tuple[SubGroups, ...], str]:
        """The policies, and what is wrong with them."""
        found: dict[str, SubGroups] = {}
        for place, policy in enumerate(policies):
            field = f"spec.subGroupPolicy[{place}]"
            name, size = text(policy, "name"), policy.get("subGroupSize", 1)
            least, keys = policy.get("minSubGroups", 0), policy.get("matchLabelKeys") or []
            for key, value, lowest in (("subGroupSize", size, 1), ("minSubGroups", least, 0)):
                if type(value) is not int or value < lowest:
                    return (), f"{field}.{key}: {value!r} is not a whole number from {lowest} on"
            if not name or name in found:
                return (), f'{field}.name: "{name}" is missing, or there twice'
            if not all(type(key) is str and key for key in keys):
                return (), f"{field}.matchLabelKeys: {keys!r} are not label keys"
            wish, inside = policy.get("networkTopology") or {}, f"{field}.networkTopology"
            level, tier, wrong = self._network_topology(wish, inside)
            if wrong:
                return (), wrong
            if wish.get("mode") == "soft":  # as close as the rest allows: so they are anyway
                level, tier = "", None
            selector = policy.get("labelSelector") or {}
            labels = podrules.expressions(selector, f"{field}.labelSelector")
            found[name] = SubGroups(name, size, least, labels, tuple(keys), level, tier=tier)
        return tuple(found.values()), ""

    def _network_topology(self, wish: Json, field: str) -> tuple[str, int | None, str]:
        """The level that should hold the gang, by name or by tier, and what is wrong."""
        mode = wish.get("mode") or "hard"
        tier, name = wish.get("highestTierAllowed"), wish.get("highestTierName") or ""
        if mode not in {"hard", "soft"}:
            return "", None, f'{field}.mode: "{mode}" is neither hard nor soft'
        if tier is not None and (isinstance(tier, bool) or not isinstance(tier, int) or tier < 0):
            return "", None, f"{field}.highestTierAllowed: {tier!r} is not a whole number"
        if tier is None and name and name not in self._closeness:
            return "", None, f'{field}.highestTierName: "{name}" is not one of {self._choices()}'
        return (name if tier is None else ""), tier, ""

    def owner(self, kind: str, raw: Json) -> OwnerSeen:
        return owners.owner(kind, raw, self._closeness)

    def hypernode(self, raw: Json) -> HyperNodeSeen:
        try:
            name = raw["metadata"]["name"]
        except BROKEN as error:
            raise Malformed(f"HyperNode {who(raw)}: {what(error)}") from error
        try:
            seen = _hypernode(name, raw["spec"])
        except BROKEN as error:
            seen = HyperNodeSeen(name, 0, error=what(error))
        return replace(seen, uid=str(raw["metadata"].get("uid") or ""))


def _task_minimums(wish: Json) -> tuple[tuple[tuple[str, int], ...], str]:
    for task, least in wish.items():
        if isinstance(least, bool) or not isinstance(least, int) or least < 0:
            return (), f"spec.minTaskMember.{task}: {least!r} is not a whole number"
    return tuple(sorted((task, least) for task, least in wish.items() if least)), ""


def _placement(annotations: Json) -> tuple[str, str]:
    """pack or spread, and what is wrong with it."""
    told = text(annotations, names.PLACEMENT)
    if told in {"", names.PACK, names.SPREAD}:
        return told, ""
    return "", f'annotation {names.PLACEMENT}: "{told}" is neither {names.PACK} nor {names.SPREAD}'


def _roles(annotations: Json) -> tuple[Roles | None, str]:
    """Sets of tasks, "ps,worker;ps": one by itself means its pods among each other, several mean each
    with each other; and what is wrong with them."""
    found = []
    for key in (names.TASK_NEAR, names.TASK_APART):
        told, pairs = text(annotations, key), set[tuple[str, str]]()
        for together in filter(None, told.split(";")):
            tasks = sorted({task.strip() for task in together.split(",")})
            if not all(tasks):
                return None, f'annotation {key}: "{told}" has a task without a name'
            pairs.update(combinations(tasks, 2) if len(tasks) > 1 else [(tasks[0], tasks[0])])
        found.append(tuple(sorted(pairs)))
    return (Roles(*found) if any(found) else None), ""


def _min_resources(told: Any) -> Amounts:
    """Under its own name or as quotas call it (requests.cpu); limits and numbers of objects ask for
    nothing."""
    found: dict[str, int] = {}
    for key, quantity in (told or {}).items():
        resource = key.removeprefix("requests.")
        if not key.startswith(("limits.", "count/")):
            amount = podspec.amounts({resource: quantity}, "spec.minResources")[resource]
            found[resource] = max(amount, found.get(resource, 0))
    return tuple(sorted((resource, amount) for resource, amount in found.items() if amount))


def _hypernode(name: str, spec: Json) -> HyperNodeSeen:
    tier = spec.get("tier")
    if isinstance(tier, bool) or not isinstance(tier, int) or tier < 0:
        return HyperNodeSeen(name, 0, error=f"spec.tier: {tier!r} is not a whole number")
    members = []
    for place, raw in enumerate(spec.get("members") or ()):
        field = f"spec.members[{place}]"
        kind, selector = raw.get("type"), raw.get("selector") or {}
        if kind not in {"Node", "HyperNode"}:
            return HyperNodeSeen(
                name, tier, error=f'{field}.type: "{kind}" is no Node or HyperNode'
            )
        exact = text(selector.get("exactMatch") or {}, "name")
        pattern = text(selector.get("regexMatch") or {}, "pattern")
        wanted = selector.get("labelMatch") or {}
        labels = tuple(sorted((wanted.get("matchLabels") or {}).items()))
        if wanted.get("matchExpressions") or (labels and kind != "Node"):
            why = f"{field}.selector.labelMatch: only matchLabels, and only of nodes"
            return HyperNodeSeen(name, tier, error=why)
        if sum(map(bool, (exact, pattern, labels))) != 1:
            why = f"{field}.selector: needs one of exactMatch, regexMatch, labelMatch"
            return HyperNodeSeen(name, tier, error=why)
        members.append(Member(kind, exact, pattern, labels))
    return HyperNodeSeen(name, tier, tuple(members))


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
        return seconds(str(told)), ""
    except NotAQuantity as error:
        return None, f"annotation {names.RUNS_FOR}: {error}"


def _rank(name: str, labels: Json, annotations: Json) -> int:
    for key in _RANKS:
        index = annotations.get(key) or labels.get(key)
        if index and index.isascii() and index.isdigit():
            return int(index[:18])
    match = _TRAILING_NUMBER.search(name)
    return int(match[1]) if match else 0


def _node(raw: Json) -> NodeSeen:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    return NodeSeen(
        name=meta["name"],
        labels=meta.get("labels") or {},
        allocatable=podspec.amounts(status.get("allocatable"), "status.allocatable"),
        taints=tuple(
            Taint(taint["key"], taint.get("value") or "", taint["effect"])
            for taint in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        ready=any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        ),
    )


def _seconds(stamp: str | None) -> float:
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def _moment(told: Any) -> float | None:
    """A time that people wrote; what can't be read was never said."""
    try:
        return _seconds(told) or None
    except (TypeError, ValueError):
        return None
