"""Turns documents into a scenario: facts with their times, decoded as the live scheduler would, and what the
simulated world needs beyond them. Raises BadInput."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from central.controllers import builtin_controllers
from central.kube.decode import api_kinds as watched
from central.kube.decode import (
    device_claim_decoder,
    elastic_range,
    pod_affinity,
    podspec,
    storage_decoder,
)
from central.kube.decode.decoder import Decoder
from central.kube.decode.fields import DECODE_ERRORS, FieldError, MalformedObject, error_text
from central.kube.decode.gang_rules import GangRule
from central.model import facts, native_podgroup
from central.model.device_claims import ClaimKey, DeviceClaimSeen, DeviceClaimSpec
from central.model.facts import Fact
from central.model.json_types import Json
from central.model.timestamps import stamp
from central.model.volumes import ClaimSeen
from central.simulator import controller_templates, node_defaults, scenario_kinds, training_progress
from central.simulator.documents import NO_OBJECTS, BadInput, ManifestObject, SourceLocation
from central.simulator.priorities import PriorityClasses
from central.simulator.sim_budgets import DisruptionBudget
from central.simulator.sim_pod import PodPlan
from central.simulator.training_progress import JobKey, TrainingJob
from protos.names import DOMAIN, ELASTIC_MIN, GRACE, GROUP_NAMES, RUNS_FOR, START_TAKES
from protos.topology import NodeTopology

ARRIVES = f"{DOMAIN}/arrives-at"
LEAVES = f"{DOMAIN}/leaves-at"
RECREATE = f"{DOMAIN}/recreate"

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
NAMED_MOST = 20  # objects of one kind of warning
STEP_S = (
    1e-6  # between objects that arrive together: their order in the files is the order of creation
)


@dataclass(slots=True)
class Scenario:
    arrivals: list[tuple[float, Fact]] = field(default_factory=list)
    departures: list[tuple[float, Fact]] = field(default_factory=list)
    plans: dict[str, PodPlan] = field(default_factory=dict)  # by uid
    machines: dict[str, NodeTopology] = field(default_factory=dict)  # by node
    budgets: list[DisruptionBudget] = field(default_factory=list)
    jobs: dict[float, Json] = field(default_factory=dict)  # raw, by creation time
    # raw owners of Jobs or pods, by the fact's id()
    batch: dict[int, Json] = field(default_factory=dict)
    endless: str = ""  # an object with which the simulation never ends by itself
    warnings: list[str] = field(default_factory=list)
    priorities: PriorityClasses = field(default_factory=PriorityClasses)
    training: dict[JobKey, TrainingJob] = field(default_factory=dict)
    claim_templates: dict[ClaimKey, DeviceClaimSpec] = field(default_factory=dict)
    reader: Decoder = field(default_factory=lambda: Decoder((), ()))


def read(
    documents: Iterable[tuple[SourceLocation, Json]],
    scheduler_names: Sequence[str],
    levels: Sequence[str],
    rules: Sequence[GangRule] = (),
) -> Scenario:
    kinds = {(rule.resource.group, rule.resource.kind) for rule in rules}
    objects = [
        copy
        for place, raw in documents
        for copy in node_defaults.copies(ManifestObject(place, raw, kinds))
    ]
    if not objects:
        raise BadInput(NO_OBJECTS)
    return _ScenarioBuilder(objects, Decoder(scheduler_names, levels, rules)).read()


class _ScenarioBuilder:
    def __init__(self, objects: Sequence[ManifestObject], reader: Decoder) -> None:
        self._objects = objects
        self._reader = reader
        self._watched = {
            (kind.resource.group, kind.resource.kind): kind for kind in watched.kinds(reader)
        }
        self._groups: dict[tuple[str, str], ManifestObject] = {}
        self._seen: dict[tuple[scenario_kinds.GroupKind, str, str, float], SourceLocation] = {}
        self._unread: Counter[scenario_kinds.GroupKind] = Counter()
        self._rigid: dict[str, None] = {}  # objects whose size does not change here
        self._foreign_pods = 0
        self._uids: dict[str, str] = {}  # of pods, by those in the manifests
        self._jobs: set[tuple[str, str]] = set()
        self._found = Scenario(reader=reader)
        self._priorities = self._found.priorities

    def read(self) -> Scenario:
        for found in self._objects:
            if found.kind == scenario_kinds.POD_GROUP:
                self._groups[found.namespace, found.name] = found
            elif found.kind == scenario_kinds.NATIVE_POD_GROUP:
                self._groups[found.namespace, native_podgroup.gang_name(found.name)] = found
            elif found.kind == scenario_kinds.PRIORITY:
                self._priorities.add(found.name, found.raw, found.wrong)
        self._objects = list(self._without_deployments())
        for order, found in enumerate([*self._namespaces(), *self._objects]):
            self._add(order, found)
        self._found.arrivals = [
            (at, self._of_these_pods(fact)) for at, fact in self._found.arrivals
        ]
        self._warn()
        return self._found

    def _without_deployments(self) -> Iterator[ManifestObject]:
        """Replaces Deployments by ReplicaSets, except where a dump contains these already."""
        there = {
            (found.namespace, owner.get("name"))
            for found in self._objects
            if found.kind == scenario_kinds.REPLICA_SET
            for owner in found.owners()
        }
        for found in self._objects:
            if found.kind != scenario_kinds.DEPLOYMENT:
                yield found
            elif (found.namespace, found.name) not in there:
                controller_templates.check(found)
                yield ManifestObject(found.place, builtin_controllers.replica_set(found.raw))

    def _namespaces(self) -> list[ManifestObject]:
        """Namespaces that are used but not in the input. All namespaces get their name as a label."""
        given = [found for found in self._objects if found.kind == scenario_kinds.NAMESPACE]
        for found in given:
            found.meta["labels"] = {NAMESPACE_LABEL: found.name, **found.labels}
        # where each is used first, which an error about its name says
        used: dict[str, SourceLocation] = {}
        for found in self._objects:
            if found.namespace:
                used.setdefault(found.namespace, found.place)
        return [
            ManifestObject(
                used[name],
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": {NAMESPACE_LABEL: name}},
                },
            )
            for name in sorted(used.keys() - {found.name for found in given})
        ]

    def _add(self, order: int, found: ManifestObject) -> None:
        arrives = self._inherited(found, ARRIVES) or 0.0
        self._check_unique(found, arrives)
        if found.kind == scenario_kinds.BUDGET:
            self._found.budgets.append(
                DisruptionBudget.read(found.namespace, found.name, found.raw, found.wrong)
            )
        if found.kind == scenario_kinds.CLAIM_TEMPLATE:
            self._add_claim_template(found)
            return
        kind = self._watched.get(found.kind)
        if kind is None:
            self._unread[found.kind] += found.kind not in scenario_kinds.OF_NO_MATTER
            return
        self._complete(order, found, arrives)
        if found.kind in scenario_kinds.RIGID and elastic_range.is_elastic(found.annotations):
            self._rigid[f"{found.kind[1]} {found.namespace}/{found.name}"] = None
        try:
            fact = kind.seen(found.raw)
        except MalformedObject as error:
            raise found.place.wrong(str(error)) from error
        if isinstance(fact, facts.PodSeen | facts.GangSeen | facts.JobSeen):
            fact = replace(fact, created=arrives + order * STEP_S)
        if isinstance(fact, facts.JobSeen):
            self._found.jobs[fact.created] = found.raw
            self._read_training(found, fact)
        self._check(found, fact)
        self._found.arrivals.append((arrives, fact))
        leaves = found.seconds(LEAVES)
        if leaves is not None:
            self._found.departures.append((leaves, kind.gone(found.raw)))
        if isinstance(fact, facts.BatchFact | facts.OwnerSeen):
            self._found.batch[id(fact)] = found.raw
            if isinstance(fact, facts.CronSeen) and not fact.suspend and leaves is None:
                self._found.endless = f"CronJob {fact.namespace}/{fact.name}"

    def _of_these_pods(self, fact: Fact) -> Fact:
        """The fact; a device claim of a cluster's dump names its pods by the uids that they have here."""
        if not isinstance(fact, DeviceClaimSeen):
            return fact
        users = tuple(self._uids.get(uid, uid) for uid in fact.reserved)
        return replace(fact, reserved=users, pod=self._uids.get(fact.pod, fact.pod))

    def _add_claim_template(self, found: ManifestObject) -> None:
        try:
            spec = device_claim_decoder.claim_spec(found.part("spec").get("spec") or {})
        except DECODE_ERRORS as error:
            raise found.wrong(f"spec.spec: {error_text(error)}") from error
        self._found.claim_templates[found.namespace, found.name] = spec

    def _complete(self, order: int, found: ManifestObject, arrives: float) -> None:
        """Adds what the API server and the controllers would add."""
        meta = found.meta
        own = meta.get("uid")
        meta["uid"] = f"{found.kind[1]}/{found.namespace}/{found.name}"
        if found.kind == scenario_kinds.POD and own:
            self._uids[str(own)] = meta["uid"]
        meta.pop("creationTimestamp", None)
        meta.pop("deletionTimestamp", None)
        if found.namespace:
            meta["namespace"] = found.namespace
        if found.kind == scenario_kinds.NODE:
            if (machine := node_defaults.node(found)) is not None:
                self._found.machines[found.name] = machine
        elif found.kind == scenario_kinds.POD:
            self._complete_pod(found)
        elif found.kind in scenario_kinds.CONTROLLERS:
            meta["uid"] = own or meta["uid"]  # pods refer to it as their owner's
            self._complete_template(order, found, arrives)
        elif found.kind == scenario_kinds.JOB:
            meta["uid"] = own or f"job{order}"  # part of its PodGroup's name
            self._jobs.add((found.namespace, found.name))
        elif found.kind == scenario_kinds.CRON_JOB:
            meta["creationTimestamp"] = stamp(arrives)  # its schedule starts then

    def _read_training(self, found: ManifestObject, fact: facts.JobSeen) -> None:
        try:
            job = training_progress.read(fact, found.annotations)
        except ValueError as error:
            raise found.wrong(str(error)) from error
        if job is not None:
            self._found.training.setdefault(job.key, job)

    def _check_unique(self, found: ManifestObject, arrives: float) -> None:
        """An object may appear again later with changes; a pod may not."""
        moment = 0.0 if found.kind == scenario_kinds.POD else arrives
        key = (found.kind, found.namespace, found.name, moment)
        if key in self._seen:
            raise found.wrong(f"metadata.name: already defined in {self._seen[key]}")
        self._seen[key] = found.place

    def _inherited(self, found: ManifestObject, annotation: str) -> float | None:
        """A duration annotation; a pod without it inherits its PodGroup's."""
        value = found.seconds(annotation)
        if value is None and found.kind == scenario_kinds.POD:
            named = [str(found.annotations.get(key, "")) for key in GROUP_NAMES]
            own = found.part("spec").get("schedulingGroup")
            if isinstance(own, dict):
                named.append(native_podgroup.gang_name(str(own.get("podGroupName"))))
            for name in named:
                group = self._groups.get((found.namespace, name))
                if group is not None:
                    return group.seconds(annotation)
        return value

    def _complete_pod(self, found: ManifestObject) -> None:
        """Adds what admission and the kubelet would add to a pod."""
        spec = found.part("spec")
        containers = spec.get("containers")
        if not isinstance(containers, list) or not containers:
            problem = "missing" if containers is None else "not a list with a container"
            raise found.wrong(f"spec.containers: {problem}")
        self._priorities.apply(spec, found.wrong)
        status = found.part("status")
        if spec.get("nodeName"):
            status.setdefault("phase", "Running")
        owners = [owner for owner in found.owners() if not self._is_job(found, owner)]
        runs_s = self._inherited(found, RUNS_FOR)
        if runs_s is not None and RUNS_FOR not in found.annotations:
            found.meta["annotations"] = {**found.annotations, RUNS_FOR: f"{runs_s:.6f}s"}
        self._found.plans[found.meta["uid"]] = PodPlan(
            runs_s,
            bool(owners) or found.annotations.get(RECREATE) == "true",
            tuple(found.labels.items()),
            str(owners[0].get("uid", "")) if owners else "",
            self._own_claims(found),
            self._inherited(found, GRACE) or 0.0,
            self._inherited(found, START_TAKES) or 0.0,
        )

    def _own_claims(self, found: ManifestObject) -> tuple[ClaimSeen, ...]:
        try:
            return storage_decoder.ephemeral_claims(found.raw)
        except DECODE_ERRORS as error:
            raise found.wrong(f"spec.volumes: {error_text(error)}") from error

    def _complete_template(self, order: int, found: ManifestObject, arrives: float) -> None:
        """Checks and completes a pod template as if it were a pod."""
        controller_templates.check(found)
        spec = found.raw["spec"]
        pod = controller_templates.Template(found)
        self._complete(order, pod, arrives)
        del self._found.plans[pod.meta["uid"]]
        try:
            seen = self._reader.pod(pod.raw)
        except MalformedObject as error:
            raise found.place.wrong(str(error)) from error
        self._check(pod, seen)
        given = {**(spec["template"].get("metadata") or {}), "annotations": pod.meta["annotations"]}
        spec["template"] = {"metadata": given, "spec": pod.raw["spec"]}

    def _is_job(self, found: ManifestObject, owner: Json) -> bool:
        """Returns whether the owner is a Job of the scheduler's own Job controller."""
        kind = (scenario_kinds.group_of(str(owner.get("apiVersion"))), owner.get("kind"))
        return kind == scenario_kinds.JOB and (found.namespace, owner.get("name")) in self._jobs

    def _check(self, found: ManifestObject, fact: Fact) -> None:
        """Raises an error for a fact that an API server would reject. A fact that this version does not support is
        accepted: its gang stays pending with the reason."""
        if isinstance(fact, facts.PodSeen):
            self._foreign_pods += not fact.ours and not fact.node
            if fact.spec.unsupported:
                try:
                    spec = found.raw["spec"]
                    rules = pod_affinity.decode_pod_rules(
                        spec, fact.ours, fact.namespace, found.labels
                    )
                    podspec.decode_pod_spec(spec, fact.ours, rules)
                except FieldError as error:
                    raise found.wrong(str(error)) from error
                except (AttributeError, TypeError, KeyError, ValueError) as error:
                    raise found.wrong(fact.spec.unsupported) from error
        elif isinstance(fact, facts.GangSeen | facts.JobSeen | facts.CronSeen | facts.FlowSeen):
            if fact.error.startswith("spec.") and "not supported" not in fact.error:
                raise found.wrong(fact.error)
        elif isinstance(fact, facts.NodeSeen) and fact.name not in self._found.machines:
            machine = node_defaults.uniform(fact)
            if machine is not None:
                self._found.machines[fact.name] = machine

    def _warn(self) -> None:
        for kind, count in sorted(self._unread.items()):
            objects = f"{count} {kind[1]} object{'s' if count != 1 else ''}"
            group = kind[0] or "the core API"
            self._found.warnings.append(f"{objects} of {group}: {scenario_kinds.unread(kind)}")
        names = list(self._rigid)
        for name in names[:NAMED_MOST]:
            self._found.warnings.append(
                f"{name}: its size stays as it is, because its controller is not simulated; annotation {ELASTIC_MIN} "
                "says only "
                "how many of the pods in the files start together"
            )
        if len(names) > NAMED_MOST:
            more = len(names) - NAMED_MOST
            self._found.warnings.append(f"{more} more objects whose size stays as it is")
        if self._foreign_pods:
            self._found.warnings.append(
                f"{self._foreign_pods} pods have the schedulerName of another scheduler and will not be "
                "placed (--scheduler-names)"
            )
