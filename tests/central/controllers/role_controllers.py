"""A scheduler with one object whose pods come and go as JobSet's, LeaderWorkerSet's and KubeRay's controllers create
and delete them: facts by the real decoders, sizes as the scheduler asks for them."""

from collections.abc import Callable, Iterator
from copy import deepcopy

from central.controllers.composite import new_scheduler
from central.kube.decode import elastic_object_decoder, gang_rules
from central.kube.decode.decoder import Decoder
from central.model.decisions import Bind, Create, Decision, Evict, SetSize
from central.model.facts import Answered, BindDone, ElasticSeen, Fact, PodGone
from central.model.json_types import Json
from central.scheduler.cycle import schedule_once
from tests.central import factories
from tests.central.kube import controller_fixtures as made
from tests.central.scheduler.invariants import check_invariants

READER = Decoder(("lockstep",), factories.LEVELS)
Wanted = Iterator[tuple[str, Json]]  # names and manifests of the pods that the object asks for


def noted(raw: Json, **notes: str) -> Json:
    """With annotations lockstep.dev/elastic-min and so on. A change costs a second."""
    found = deepcopy(raw)
    own = {f"lockstep.dev/elastic-{key}": value for key, value in notes.items()}
    found["metadata"]["annotations"] |= {"lockstep.dev/resize-cost": "1s", **own}
    return found


class Played:
    """racks: nodes of eight GPUs in each."""

    def __init__(self, raw: Json, racks: tuple[int, ...] = (8,)) -> None:
        self.scheduler = new_scheduler(factories.LEVELS)
        self.raw, self.now = raw, 0.0
        self.pods: dict[str, Json] = {}  # by name
        self.sizes: list[SetSize] = []
        self.warnings: list[str] = []
        self.evicted: list[str] = []
        self.made = 0
        names = [(f"n{r}-{i}", f"r{r}") for r, count in enumerate(racks) for i in range(count)]
        self.facts: list[Fact] = [factories.node(name, rack=rack) for name, rack in names]
        self.sync()

    # --- the world

    def sync(self) -> None:
        """What the object's controller does, and what the watches show of it."""
        kind = self.raw["kind"]
        [rule] = [one for one in READER.rules if one.resource.kind == kind]
        self.facts.append(gang_rules.decode_object(rule, self.raw, READER._topology))
        self.facts.append(elastic_object_decoder.decode(kind, self.raw))
        CONTROLLERS[kind](self)

    def create(self, name: str, manifest: Json) -> None:
        self.made += 1
        manifest["metadata"] |= {"name": name, "uid": f"{name}#{self.made}"}
        self.pods[name] = manifest
        self.facts.append(READER.pod(manifest))

    def delete(self, name: str) -> None:
        self.facts.append(PodGone(self.pods.pop(name)["metadata"]["uid"]))

    def _outcome(self, decision: Decision) -> None:
        match decision:
            case Bind():
                if (pod := self.pods.get(decision.name)) is not None:
                    pod["spec"]["nodeName"] = decision.node
                    pod["status"] = {"phase": "Running"}
                    self.facts.append(READER.pod(pod))
                self.facts.append(BindDone(decision.pod, decision.node))
            case Evict():
                self.evicted.append(decision.name)
            case Create(kind="Event"):
                self.warnings.append(decision.body["message"])
            case SetSize():
                self.sizes.append(decision)
                place = (decision.kind, decision.namespace, decision.name)
                set_size(self.raw, decision)
                self.facts.append(Answered("SetSize", *place, uid=decision.uid))
                self.sync()
            case _:
                pass

    def run(self, seconds: float = 20.0) -> "Played":
        until = self.now + seconds
        while self.now < until:
            facts, self.facts = self.facts, []
            for decision in schedule_once(self.scheduler, facts, self.now):
                self._outcome(decision)
            check_invariants(self.scheduler)
            self.now += 1.0
        return self

    # --- what a test asks

    @property
    def written(self) -> list[int]:
        return [each.size for each in self.sizes]

    def placed(self, role: str = "") -> list[str]:
        return sorted(
            name
            for name, pod in self.pods.items()
            if pod["spec"].get("nodeName") and role in name and pod["metadata"]["name"] == name
        )

    def other(self, name: str, pods: int, gpus: int = 8) -> None:
        """A gang of another owner."""
        self.facts.append(factories.gang(name, pods))
        self.facts += [factories.pod(f"{name}-{i}", gpus, name) for i in range(pods)]

    def others_placed(self, name: str) -> int:
        found = self.scheduler.state.gangs.get(("ns", name, True))
        return len(found.counts.placed) if found is not None else 0


def seen(raw: Json) -> ElasticSeen:
    found = elastic_object_decoder.decode(raw["kind"], raw)
    assert isinstance(found, ElasticSeen)
    return found


def set_size(raw: Json, asked: SetSize) -> None:
    """As the API server has it after the write."""
    spec = raw["spec"]
    if asked.kind == "JobSet":
        inside = spec["replicatedJobs"][asked.place]["template"]["spec"]
        inside |= {"parallelism": asked.size, "completions": asked.size}
    elif asked.kind == "RayCluster":
        group = spec["workerGroupSpecs"][asked.place]
        names = [name for name, _ in asked.leaving]
        group["scaleStrategy"] = {"workersToDelete": names}
        if asked.ceiling:
            group["maxReplicas"] = asked.size
        if names or not asked.ceiling:
            group["replicas"] = asked.size
    else:
        spec["replicas"] = asked.size


def _as_wanted(played: Played, wanted: Wanted) -> None:
    manifests = dict(wanted)
    for name in [name for name in played.pods if name not in manifests]:
        played.delete(name)
    for name, manifest in manifests.items():
        if name not in played.pods:
            played.create(name, manifest)


def _jobset(played: Played) -> None:
    def wanted() -> Wanted:
        for job in played.raw["spec"]["replicatedJobs"]:
            for number in range(job["replicas"]):
                for index in range(job["template"]["spec"]["parallelism"]):
                    role = job["name"]
                    gpus = 0 if role == "driver" else 8
                    pod = made.jobset_pod("train", role, number, index, gpus)
                    yield f"train-{role}-{number}-{index}", pod

    _as_wanted(played, wanted())


def _leaderworkerset(played: Played) -> None:
    spec = played.raw["spec"]

    def wanted() -> Wanted:
        for replica in range(spec["replicas"]):
            for pod in made.leaderworkerset_pods(replica, spec["leaderWorkerTemplate"]["size"]):
                yield pod["metadata"]["name"], pod

    _as_wanted(played, wanted())


def _raycluster(played: Played) -> None:
    """Deletes whom it is told to delete, and otherwise any."""
    if "tune-headgroup" not in played.pods:
        played.create("tune-headgroup", made.ray_pod("headgroup", 0))
    for group in played.raw["spec"]["workerGroupSpecs"]:
        name = group["groupName"]
        for each in group.get("scaleStrategy", {}).get("workersToDelete", ()):
            if each in played.pods:
                played.delete(each)
        wanted = min(max(group["replicas"], group["minReplicas"]), group["maxReplicas"])
        there = sorted(each for each in played.pods if each.startswith(f"tune-{name}-"))
        if not played.raw["spec"].get("enableInTreeAutoscaling"):
            for each in there[: max(0, len(there) - wanted)]:
                played.delete(each)
        for _ in range(wanted - len(there)):
            pod = made.ray_pod(name, played.made, 8 if name == "gpu" else 0)
            played.create(f"tune-{name}-{played.made}", pod)


CONTROLLERS: dict[str, Callable[[Played], None]] = {
    "JobSet": _jobset,
    "LeaderWorkerSet": _leaderworkerset,
    "RayCluster": _raycluster,
}
