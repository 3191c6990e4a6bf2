"""A small cluster whose cycles run all parts of the scheduler, for failures in each of them."""

from dataclasses import replace

from central.controllers.composite import BatchControllers
from central.model import speed_table
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import BindFailed, EvictDone, Fact, NodeSeen, PodGone, PodSeen, QueueSeen
from central.model.jobspec import ElasticTask, JobMember
from central.scheduler.cycle import schedule_once
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.quarantine import Quarantine
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.work_meter import MAX_FACTOR
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import job

MODELS = {"fast": "NVIDIA-A100-SXM4-80GB", "slow": "Tesla-T4"}
PROBES = "probes"  # nodes for pods that ask whether scheduling goes on
SIZES = ElasticTask("w", 1, 2, speeds=speed_table.parse("1:1 2:2 A100=1:4 A100=2:8"), useful=(1, 2))


class Sizes(BatchControllers):
    """Some gangs are elastic, though no Job says so."""

    def elastic_gangs(self, state: ClusterState) -> list[ElasticGang]:
        found = [state.gangs.get(("ns", name, True)) for name in ("elastic", "grows")]
        return [ElasticGang.of(gang, SIZES, {0}, settled=True) for gang in found if gang]


class WholeCycle:
    def __init__(self, quarantine: Quarantine | None = None) -> None:
        self.scheduler = Scheduler(
            Sizes(), factories.LEVELS, quarantine=quarantine, half_life_s=60.0
        )
        self.pods: dict[str, PodSeen] = {}
        self.decisions: list[Decision] = []
        self.now = 0.0
        self._answers: list[Fact] = []

    def begin(self) -> None:
        nodes: list[Fact] = [factories.node(name, rack="r", block="b") for name in "abc"]
        nodes += [_of_model(name, model) for name, model in MODELS.items()]
        nodes += [factories.node(f"p{i}", gpus=0, labels={PROBES: "yes"}) for i in range(6)]
        queues: list[Fact] = [QueueSeen("default"), QueueSeen("other", weight=3)]
        self.cycle(*nodes, *queues, *job("low", 3, least=1, runs_for_s=500.0))
        self.cycle(*job("half", 2, gpus=0), factories.gang("planned", 2, queue="default"))
        self.cycle(*elastic("grows"))
        self.cycle(*elastic("elastic"), *job("high", 1, priority=5), *job("wide", 9, created=5.0))
        self.cycle(*job("equal", 2, created=6.0), *job("equally", 2, created=7.0))
        self.search_long("wide")
        for number in range(4):
            self.cycle(*job(f"more-{number}", 1, queue="other"))

    def search_long(self, gang: str) -> None:
        found = self.scheduler.state.gangs["ns", gang, True]
        found.attempt.work_factor = 2 * MAX_FACTOR
        self.scheduler.state.pending.changed(found)

    def cycle(self, *facts: Fact) -> set[str]:
        """Returns the names of the pods that were bound."""
        self.now += 1.0
        self.pods |= {fact.uid: fact for fact in facts if isinstance(fact, PodSeen)}
        answers, self._answers = self._answers, []
        decisions = schedule_once(self.scheduler, [*answers, *facts], self.now)
        check_invariants(self.scheduler)
        self.decisions += decisions
        for each in decisions:
            if isinstance(each, Bind) and each.name == "half-1":
                self._answers.append(BindFailed(each.pod, each.node, "no luck"))
            elif isinstance(each, Bind):
                seen = replace(self.pods[each.pod], node=each.node, phase="Running")
                self.pods[each.pod] = seen
                self._answers.append(seen)
            elif isinstance(each, Evict):
                self._answers.append(EvictDone(each.pod, trial=each.trial))
                self._answers += () if each.trial else (PodGone(each.pod),)
        return {each.name for each in decisions if isinstance(each, Bind)}

    def probe(self, name: str) -> list[Fact]:
        """A gang of two for which there is always capacity of its own."""
        gang, *pods = job(name, 2, gpus=0, queue="default", created=self.now)
        chosen = ((PROBES, "yes"),)
        return [
            gang,
            *(
                replace(pod, spec=replace(pod.spec, node_selector=chosen))
                for pod in pods
                if isinstance(pod, PodSeen)
            ),
        ]


def _of_model(name: str, model: str) -> NodeSeen:
    return factories.node(name, labels={"nvidia.com/gpu.product": model})


def elastic(name: str) -> list[Fact]:
    gang, *pods = job(name, 1)
    members = [
        replace(pod, part=JobMember(name, "uid", "w", index))
        for index, pod in enumerate(pods)
        if isinstance(pod, PodSeen)
    ]
    return [gang, *members]
