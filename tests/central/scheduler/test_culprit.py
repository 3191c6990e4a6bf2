"""On which object a phase fails: searched on copies of a cluster whose failures follow a rule over the objects that are there."""

from collections.abc import Callable, Set

import pytest

from central.model.facts import Fact, QueueSeen
from central.scheduler import culprit, fence
from central.scheduler.cycle import schedule_once
from central.scheduler.cycle_phases import CyclePhases, Phase
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.small_cluster import job
from tests.central.scheduler.whole_cycle import WholeCycle, elastic

THEIRS = "theirs-a", "theirs-b"  # pods of another scheduler
WAITING = [f"waits-{number}" for number in range(6)]
Names = Set[str]


def cluster() -> Scheduler:
    """Pending gangs; a running, an elastic one, and a running pod of no gang; nodes, a queue and a budget."""
    world = WholeCycle(CyclePhases())
    nodes: list[Fact] = [factories.node(name) for name in "abcd"]
    nodes += [factories.report(name) for name in "ab"]
    running: list[Fact] = [*job("train", 2, 4), *elastic("elastic"), factories.pod("plain", 1)]
    running += [factories.pod(name, node="d", phase="Running", ours=False) for name in THEIRS]
    world.cycle(*nodes, QueueSeen("batch"), factories.budget("it", 1), *running)
    world.cycle()
    schedule_once(world.scheduler, [each for n in WAITING for each in job(n, 2, 8, least=2)], 3.0)
    assert {key[1] for key in world.scheduler.state.pending.waiting} == set(WAITING)
    return world.scheduler


def objects(scheduler: Scheduler, *, decided: bool = False) -> set[str]:
    """Their names. decided: without gangs about which nothing is decided."""
    state = scheduler.state
    gangs = [
        each for each in state.gangs.values() if not (decided and fence.blocks(scheduler, each))
    ]
    pods = [pod.seen.name for pod in state.pods.values() if state.gang_of(pod) is None]
    seen = [node.name for node in state.nodes.values() if node.seen is not None]
    rules = [
        getattr(each, "name", "") for each in scheduler.queues.recorded(state.podclasses.namespaces)
    ]
    return {
        *seen,
        *pods,
        *rules,
        *(each.name for each in scheduler.budgets.seen.values()),
        *(each.name for each in gangs),
    }


class Trials:
    """Cycles of copies, in which the phase fails by a rule over the names of the objects.
    at: the cycle of a copy in which it fails."""

    def __init__(
        self,
        scheduler: Scheduler,
        fails: Callable[[Names], bool],
        at: int = 1,
        *,
        decided: bool = True,
        runs: Callable[[Names], bool] = bool,
    ) -> None:
        self.of, self.fails, self.at, self.decided, self.runs = scheduler, fails, at, decided, runs
        self.cycles: dict[Scheduler, int] = {}
        self.sizes: list[int] = []

    def __call__(self, copy: Scheduler) -> None:
        if copy not in self.cycles:
            self.sizes.append(max(1, len(objects(copy))))
            self._check(copy)
        self.cycles[copy] = self.cycles.get(copy, 0) + 1
        names = objects(copy, decided=self.decided)
        if self.runs(names):
            copy.quarantine.phases.run(Phase.ORDER, self._phase, copy, names, without=None)

    def _phase(self, copy: Scheduler, names: Names) -> None:
        if self.cycles[copy] == self.at and self.fails(names):
            raise ZeroDivisionError("a bug")

    def _check(self, copy: Scheduler) -> None:
        """Elastic gangs of the copy are those of its own state."""
        gangs, state = {*objects(copy)}, copy.state
        found = copy.controllers.elastic_gangs(state)
        assert [each.gang.name for each in found] == ["elastic"] * ("elastic" in gangs)
        for each in found:
            assert each.gang is state.gangs[each.key]
            assert each.placed == {0: state.pods["uid-elastic-0"]}


def searched(trials: Trials) -> set[str]:
    """The objects that are set aside after a whole search, which is cut after each copy."""
    scheduler, total = trials.of, 0
    quarantine, most = scheduler.quarantine, culprit.OBJECTS_MOST
    quarantine.leave_out(Phase.ORDER, KeyError("a bug"))
    while quarantine.search is not None or quarantine.failed_phases:
        before = len(trials.sizes)
        total += culprit.advance(scheduler, trials, most - 1) - (most - 1)
        assert len(trials.sizes) <= before + 1
    assert culprit.advance(scheduler, trials, 7) == 7, "there is no more to look for"
    built_in = 2 * len(trials.sizes)  # priority classes that each copy has in any case
    assert total <= sum(trials.sizes) <= total + built_in
    found = {each.name for each in quarantine.set_asides.values()}
    assert quarantine.phases.is_left_out(Phase.ORDER) == (not found)
    return found


def any_of(*names: str) -> Callable[[Names], bool]:
    return lambda there: not there.isdisjoint(names)


def all_of(*names: str) -> Callable[[Names], bool]:
    return lambda there: there >= {*names}


@pytest.mark.parametrize("count", range(1, 7))
def test_several_gangs_are_found_one_after_the_other_up_to_four(count: int) -> None:
    """With one more of them it is not their fault."""
    guilty = WAITING[-count:]
    assert searched(Trials(cluster(), any_of(*guilty))) == ({*guilty} if count <= 4 else set())


@pytest.mark.parametrize(
    ("together", "last"),
    [
        (["waits-1", "waits-4"], "waits-4"),
        (["waits-2", "train"], "waits-2"),
        (["waits-2", "plain"], "waits-2"),
        (["waits-2", "a"], "waits-2"),
        (["theirs-a"], "theirs-a"),
        (["theirs-b", "a"], "theirs-b"),
        (["train", "b"], "train"),
        (["plain", "b"], "plain"),
        (["c", "batch"], "c"),
        (["c", "keep-it"], "c"),
        (["batch", "keep-it"], "keep-it"),
        (["batch"], "batch"),
        (["a", "train", "waits-0", "batch"], "waits-0"),
    ],
)
@pytest.mark.parametrize("at", [1, 2])
def test_of_objects_that_fail_together_one_is_set_aside(
    together: list[str], last: str, at: int
) -> None:
    """A pending gang before one that runs, before a node, before the rest."""
    assert searched(Trials(cluster(), all_of(*together), at)) == {last}


def test_a_node_on_which_the_phase_fails_for_each_gang_is_set_aside() -> None:
    """The phase is not entered without a pending gang, which does not make the last gang the culprit."""
    for waiting in (WAITING, WAITING[:1]):
        enters = any_of(*waiting)
        trials = Trials(cluster(), fails=all_of("b"), runs=enters)
        assert searched(trials) == {"b"}


@pytest.mark.parametrize(
    "fails",
    [
        lambda there: True,
        bool,
        lambda there: False,
        any_of("a", "b"),
        any_of("waits-0", "a"),
        any_of("train", "batch"),
    ],
    ids=["always", "on all", "never again", "two nodes", "gang or node", "gang or queue"],
)
def test_nothing_is_set_aside_where_no_object_or_gangs_are_at_fault(
    fails: Callable[[Names], bool],
) -> None:
    assert searched(Trials(cluster(), fails)) == set()


def test_what_fails_later_than_two_cycles_is_not_found() -> None:
    assert searched(Trials(cluster(), any_of("waits-3"), at=3)) == set()


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("guilty", [["waits-1", "waits-5"], ["plain"]])
def test_a_gang_leaves_the_state_only_if_it_does_not_help_that_nothing_is_decided_about_it(
    guilty: list[str], decided: bool
) -> None:
    scheduler = cluster()
    searched(Trials(scheduler, any_of(*guilty), decided=decided))
    kinds = {key.kind for key in scheduler.quarantine.set_asides}
    facts = {"Pod", "PodGroup"} if guilty != ["plain"] else {"Pod"}
    assert kinds == ({"gang"} if decided else facts)
    left = {each.name for each in scheduler.state.gangs.values()} & {*guilty}
    assert left == ({*guilty} if decided else set())


def test_gangs_that_were_set_aside_for_the_phase_are_released_with_it() -> None:
    scheduler = cluster()
    innocent, phases = scheduler.state.gangs["ns", "waits-0", True], scheduler.quarantine.phases
    phases.failed_on(Phase.ORDER, innocent.key)
    fence.set_gang_aside(scheduler, innocent, KeyError("a bug"))
    assert searched(Trials(scheduler, any_of("waits-3"))) == {"waits-3"}


def test_one_search_follows_the_other() -> None:
    scheduler = cluster()
    scheduler.quarantine.leave_out(Phase.REASONS, KeyError("a bug"))
    assert searched(Trials(scheduler, any_of("waits-3"))) == {"waits-3"}
    assert scheduler.quarantine.phases.is_left_out(Phase.REASONS), "it did not fail in the copies"
