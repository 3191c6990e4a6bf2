"""What queues' objects say: states, counts by phase, what is allocated; and when that is written."""

from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.decisions import Decision, SetStatus
from central.model.facts import Answered, Fact, GangGone, PodGone, QueueGone, QueueSeen
from central.model.resources import GPU_EQUIVALENTS
from central.scheduler import cycle
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.status.queue_status import quantities
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants


def queue(name: str, **fields: object) -> QueueSeen:
    return QueueSeen(name, uid=f"uid-{name}", **fields)  # type: ignore[arg-type]  # a test's shorthand


def gang(
    name: str, queue: str, pods: int = 1, gpus: int = 1, *, node: str = "", phase: str = "Pending"
) -> list[Fact]:
    members = [
        factories.pod(f"{name}-{rank}", gpus, name, node=node, phase=phase) for rank in range(pods)
    ]
    return [factories.gang(name, pods, queue=queue), *members]


class World:
    """Writes what it is asked to, at once, unless it is away."""

    def __init__(self, *facts: Fact) -> None:
        self.cluster = new_scheduler(factories.LEVELS)
        self.queues: dict[str, dict[str, object]] = {}
        self.writes = 0
        self.away = ""
        self.now = 0.0
        self.step(0.0, *facts)

    def step(self, now: float, *facts: Fact) -> list[Decision]:
        self.now = now
        decisions = schedule_once(self.cluster, facts, now)
        check_invariants(self.cluster)
        for each in decisions:
            if isinstance(each, SetStatus):
                self.writes += 1
                apply(self.cluster, Answered("SetStatus", each.kind, "", each.name, why=self.away))
                if not self.away:
                    assert each.uid == self.cluster.queues.by_name[each.name].seen.uid
                    self.queues[each.name] = dict(each.status)
        return decisions

    def settle(self) -> None:
        """Until nothing is due any more."""
        while (due := cycle.due(self.cluster, self.now)) is not None:
            self.step(max(due, self.now))

    def state(self, name: str) -> object:
        self.settle()
        return self.queues[name]["state"]


def counts(status: dict[str, object]) -> dict[str, object]:
    shown = {phase: status[phase] for phase in ("pending", "running", "completed", "unknown")}
    return {phase: count for phase, count in shown.items() if count}


def test_counts_and_what_is_allocated() -> None:
    world = World(
        factories.node("a"),
        queue("org"),
        queue("team", parent="org"),
        *gang("runs", "team", 2, 3),
        *gang("waits", "team", 1, 4),
    )
    world.settle()
    assert counts(world.queues["team"]) == {"running": 1, "pending": 1}
    assert world.queues["team"]["state"] == "Open"
    allocated = {"cpu": "200m", "nvidia.com/gpu": "6", "pods": "2"}
    assert world.queues["team"]["allocated"] == allocated
    assert world.queues["org"]["allocated"] == allocated, "with all below it"
    assert counts(world.queues["org"]) == {}, "its own gangs only"
    ended = gang("runs", "team", 2, 3, node="a", phase="Succeeded")
    world.step(10.0, *ended)
    world.settle()
    assert counts(world.queues["team"]) == {"running": 1, "completed": 1}
    assert world.queues["team"]["allocated"] == {"cpu": "100m", "nvidia.com/gpu": "4", "pods": "1"}


def test_a_queue_closes_when_its_gangs_are_done() -> None:
    world = World(factories.node("a"), queue("q"), *gang("one", "q", 1, 4), *gang("two", "q", 1, 8))
    assert world.state("q") == "Open"
    world.step(5.0, queue("q", closed=True))
    assert world.state("q") == "Closing"
    world.step(20.0, *gang("one", "q", 1, 4, node="a", phase="Succeeded"))
    assert world.state("q") == "Closing", "one waits in it"
    world.step(30.0, GangGone("ns", "two"), PodGone("uid-two-0"))
    assert world.state("q") == "Closed"
    world.step(40.0, queue("q"))
    assert world.state("q") == "Open"


def test_a_queue_above_is_closing_for_those_below_it() -> None:
    world = World(factories.node("a"), queue("org", closed=True), queue("team", parent="org"))
    assert (world.state("org"), world.state("team")) == ("Closed", "Closed")
    world.step(5.0, *gang("late", "team"))
    assert (world.state("org"), world.state("team")) == ("Closing", "Closing")


def test_queues_below_open_with_the_queue_above() -> None:
    world = World(
        factories.node("a"),
        *(queue("org", closed=True), queue("team", parent="org")),
        queue("shut", parent="org", closed=True),
    )
    closers = [world.queues[name]["closedBy"] for name in ("org", "team", "shut")]
    assert closers == ["", "org", ""]
    world.step(30.0, queue("org"))
    world.settle()
    assert [world.state(name) for name in ("org", "team", "shut")] == ["Open", "Open", "Closed"]
    assert world.queues["team"]["closedBy"] == ""


def test_a_queue_that_can_not_be_used_is_unknown() -> None:
    world = World(
        factories.node("a"), queue("q", error="spec.weight: 0"), queue("below", parent="q")
    )
    assert (world.state("q"), world.state("below")) == ("Unknown", "Unknown")


def test_once_a_second_and_only_what_changed() -> None:
    world = World(factories.node("a"), queue("q"), queue("idle"))
    assert world.writes == 2
    world.settle()
    assert world.writes == 2
    for step in range(20):
        world.step(10.0 + step / 10, *gang(f"g{step}", "q", gpus=0))
    assert world.writes == 4
    world.settle()
    assert world.writes == 5
    assert counts(world.queues["q"]) == {"running": 20}


def test_one_write_at_a_time_and_again_after_a_failure() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    first = schedule_once(scheduler, [factories.node("a"), queue("q")], 0.0)
    assert [each for each in first if isinstance(each, SetStatus)]
    assert not [
        d for d in schedule_once(scheduler, gang("g", "q"), 9.0) if isinstance(d, SetStatus)
    ]
    failed = Answered("SetStatus", "Queue", "", "q", why="the server is away")
    assert not [d for d in schedule_once(scheduler, [failed], 10.0) if isinstance(d, SetStatus)]
    due = cycle.due(scheduler, 10.0)
    assert due == 20.0
    [again] = [d for d in schedule_once(scheduler, [], due) if isinstance(d, SetStatus)]
    assert again.status["running"] == 1


def test_a_recreated_queue_gets_its_status_again() -> None:
    world = World(factories.node("a"), queue("q"))
    world.step(5.0, QueueGone("q"))
    world.step(6.0, replace(queue("q"), uid="other"))
    assert world.writes == 2
    gone = Answered("SetStatus", "Queue", "", "q", why="it is gone", code=404)
    world.step(7.0, gone)
    assert world.writes == 2


def test_without_queues_nothing_is_written() -> None:
    world = World(factories.node("a"), *gang("g", "default"))
    assert world.writes == 0
    assert cycle.due(world.cluster, 0.0) is None


def test_a_queue_says_what_is_above_it() -> None:
    """Also where the tree is broken: the API server refuses cycles by it."""

    def above(name: str) -> object:
        world.settle()
        return world.queues[name]["ancestors"]

    world = World(
        factories.node("a"),
        *(queue("org", parent="root"), queue("team", parent="org"), queue("vision", parent="team")),
        *(queue("lost", parent="gone"), queue("child", parent="lost")),
        *(queue("x", parent="y"), queue("y", parent="x"), queue("z", parent="x")),
    )
    assert above("org") == []
    assert above("vision") == ["team", "org"]
    assert above("child") == ["lost", "gone"]
    assert (above("x"), above("y"), above("z")) == (["y"], ["x"], ["x", "y"])
    world.step(30.0, queue("team"))
    assert above("vision") == ["team"]


def test_nothing_is_kept_of_queues_that_are_gone() -> None:
    """Pods name any queue, also one that does not exist; and queues come and go."""
    world = World(factories.node("n0"), queue("q"), queue("other"))
    statuses = world.cluster.queue_statuses
    before = len(statuses._counts)
    world.step(1.0, *gang("g", "q", gpus=0), *gang("h", "nobody's", gpus=0))
    world.step(
        10.0, PodGone("uid-g-0"), GangGone("ns", "g"), PodGone("uid-h-0"), GangGone("ns", "h")
    )
    world.step(20.0, QueueGone("q"))
    assert len(statuses._counts) == before
    assert list(statuses.writes._written) == ["other"]
    assert list(statuses.writes._not_before) == ["other"]


def test_allocated_amounts_are_quantities_of_what_is_used() -> None:
    """CPU in thousandths, bytes in Mi where they are whole ones, and other resources as numbers; read with plain
    units."""
    units = {"m": 1, "Mi": 2**20, "": 1}
    sums = {
        "cpu": 2500,
        "memory": 3 * 2**30,
        "ephemeral-storage": 2**20,
        "hugepages-2Mi": 4 * 2**20,
        "nvidia.com/gpu": 2**20,
        "pods": 7,
        GPU_EQUIVALENTS: 5,
    }
    for memory in (sums["memory"], 2**20 + 1, 0):
        found = quantities(sums | {"memory": memory})
        assert found.keys() == sums.keys() - {GPU_EQUIVALENTS}
        for resource, text in found.items():
            digits = text.rstrip("Mim")
            amount = memory if resource == "memory" else sums[resource]
            assert int(digits) * units[text.removeprefix(digits)] == amount
            assert text.endswith("m") == (resource == "cpu")
    assert quantities({"memory": 3 * 2**30, "pods": 2**20}) == {
        "memory": "3072Mi",
        "pods": "1048576",
    }
