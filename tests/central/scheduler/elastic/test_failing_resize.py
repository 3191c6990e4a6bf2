"""A controller that fails once on the second of two decided sizes: members that were not asked to leave stay until they
are."""

from central.controllers.composite import BatchControllers
from central.model.facts import Fact
from central.model.jobspec import ElasticTask, JobMember
from central.scheduler.cycle import schedule_once
from central.scheduler.elastic.elastic_gang import ElasticGang, Resize
from central.scheduler.inventory.pods import EVICTED
from central.scheduler.quarantine import CYCLE
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.cluster_state import ClusterState
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

TASK = ElasticTask("w", 1, 4)
MEMBERS = range(4)


class Failing(BatchControllers):
    """Two gangs are elastic, though no Job says so."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Resize] = []
        self.fails = True

    def elastic_gangs(self, state: ClusterState) -> list[ElasticGang]:
        gangs = [gang for name in "ab" if (gang := state.gangs.get(("ns", name, True)))]
        return [ElasticGang.of(gang, TASK, MEMBERS, settled=True) for gang in gangs]

    def resize(self, asked: Resize) -> None:
        if self.told and self.fails:
            self.fails = False
            raise KeyError("a bug")
        self.told.append(asked)


def running(name: str) -> list[Fact]:
    parts = [JobMember(name, f"uid-{name}", "w", index) for index in MEMBERS]
    pods = [
        factories.pod(f"{name}-{part.index}", 1, name, node="n", phase="Running", part=part)
        for part in parts
    ]
    return [factories.gang(name, 1), *pods]


def test_who_was_not_told_to_leave_stays() -> None:
    made = Failing()
    scheduler = Scheduler(made, factories.LEVELS)
    schedule_once(scheduler, [factories.node("n"), *running("a"), *running("b")], 0.0)
    leaves = scheduler.state.pods["uid-b-0"]  # for another reason: that is not taken back
    leaves.advance(EVICTED)
    wanting = [factories.pod(f"c-{rank}", 1, "c") for rank in range(4)]
    schedule_once(scheduler, [factories.gang("c", 4), *wanting], 100.0)
    check_invariants(scheduler)
    assert scheduler.quarantine.total == {CYCLE: 1}
    assert not made.fails
    evicting = {pod.seen.uid for pod in scheduler.state.pods.values() if pod.evicting}
    leaving = {pod.seen.uid for told in made.told for pod in told.leaving}
    assert evicting == leaving | {"uid-b-0"}
