"""The GPU model that an elastic gang starts on."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.goodput import price
from central.scheduler.elastic.model_choice import CHOICES_MOST, PATIENCE_S, ModelChoices
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, priority, rigid
from tests.central.scheduler.elastic.test_goodput import _case, _least_harm
from tests.experiments.elastic import Json, Run, simulate, template

NODE = {"mode": "hard", "highestTierName": "node"}
FAST, SLOW = "NVIDIA-A100-SXM4-80GB", "Tesla-T4"
GAINS = "1:1 8:8 A100=1:10 A100=8:80"  # ten times as fast on the fast model
LESS = "1:1 8:8 A100=1:1.5 A100=8:12"


def on(model: str, index: int, cpu: int = 8) -> Json:
    node = machine(index, cpu)
    node["metadata"]["labels"]["nvidia.com/gpu.product"] = model
    return node


def job(name: str, speed: str, at_s: float = 0.0, least: int = 1, **spec: Any) -> Json:
    notes = {"lockstep.dev/speed": speed, **spec.pop("annotations", {})}
    return elastic(name, least, spec.pop("most", 8), at_s, annotations=notes, **spec)


def add_servers(gang: Json, count: int, cpu: float, **task: Any) -> None:
    """Before its trainers, which stay its elastic task."""
    server = {"name": "ps", "replicas": count, "template": template(cpu, "2Gi"), **task}
    gang["spec"]["tasks"].insert(0, server)
    gang["spec"]["plugins"]["elastic"].append("--task=w")


def starts(run: Run) -> dict[str, tuple[float, str]]:
    """When the first pod of each gang got which node."""
    found: dict[str, tuple[float, str]] = {}
    for placed in run.result.placed:
        found.setdefault(placed.gang, (placed.at_s, placed.node))
    return found


@pytest.mark.parametrize("fast", [0, 1])
def test_a_gang_that_is_alone_starts_where_it_is_fastest(fast: int) -> None:
    nodes = [on(FAST, fast), on(SLOW, 1 - fast)]
    assert starts(simulate([*nodes, job("e", GAINS)], 50))["e"] == (0.0, f"n{fast}")
    slower = "1:1 8:8 A100=1:0.5 A100=8:4"
    assert starts(simulate([*nodes, job("e", slower)], 50))["e"] == (0.0, f"n{1 - fast}")


@pytest.mark.parametrize("room", [4, 1])
def test_pods_of_other_tasks_are_where_there_is_room(room: int) -> None:
    """Two servers come with the trainers; beside those on the fast model there is room for both of them, or for
    none."""
    gang = job("e", GAINS, least=4, most=4)
    add_servers(gang, 2, 2.0)
    nodes = [on(FAST, 0, 4 + room), on(SLOW, 1)]
    run = simulate([*nodes, gang], 50)
    found = {placed.pod: (placed.at_s, placed.node) for placed in run.result.placed}
    assert {found[f"e-w-{index}"] for index in range(4)} == {(0.0, "n0")}
    servers = [found[f"e-ps-{index}"] for index in range(2)]
    assert [at_s for at_s, _ in servers] == [0.0, 0.0]
    assert room > 1 or [node for _, node in servers] == ["n1", "n1"]


def test_surplus_leaves_for_trainers_that_come_with_servers() -> None:
    """The first has all of the fast model. The servers fit nowhere there."""
    gang = job("e", GAINS, 100, least=4, most=4)
    add_servers(gang, 2, 5.0)
    documents = [on(FAST, 0), on(SLOW, 1), on(SLOW, 2), job("first", GAINS), gang]
    run = simulate(documents, 100 + PATIENCE_S / 2)
    found = {placed.pod: placed.node for placed in run.result.placed}
    assert {found[f"e-w-{index}"] for index in range(4)} == {"n0"}
    assert sorted(found[f"e-ps-{index}"] for index in range(2)) == ["n1", "n2"]


@pytest.mark.parametrize("fast", [0, 1])
def test_members_beside_a_task_in_partitions_start_where_they_are_fastest(fast: int) -> None:
    gang = job("e", GAINS, least=4, most=4)
    policy = {"totalPartitions": 2, "partitionSize": 2, "networkTopology": NODE}
    add_servers(gang, 4, 2.0, partitionPolicy=policy)
    nodes = [on(FAST, fast, 4), on(SLOW, 1 - fast, 4), on(SLOW, 2)]
    found = {each.pod: each for each in simulate([*nodes, gang], 50).result.placed}
    assert {(found[f"e-w-{n}"].at_s, found[f"e-w-{n}"].node) for n in range(4)} == {
        (0.0, f"n{fast}")
    }
    assert len({found[f"e-ps-{n}"].node for n in (0, 1)}) == 1


@pytest.mark.parametrize("fast", [0, 2])
def test_members_with_task_topology_start_where_they_are_fastest(fast: int) -> None:
    """On two nodes of the model, each of which has a server."""
    gang = job("e", GAINS, least=4, most=4)
    add_servers(gang, 2, 2.0)
    notes = {"affinity": "ps,w", "anti-affinity": "ps"}
    gang["metadata"]["annotations"] |= {
        f"volcano.sh/task-topology-{kind}": names for kind, names in notes.items()
    }
    slow = 2 - fast
    nodes = [on(FAST, fast, 6), on(FAST, fast + 1, 6), on(SLOW, slow, 6), on(SLOW, slow + 1, 6)]
    found = Counter(
        (each.pod[2], each.at_s, each.node) for each in simulate([*nodes, gang], 50).result.placed
    )
    there = (f"n{fast}", f"n{fast + 1}")
    assert found == {
        **{("p", 0.0, node): 1 for node in there},
        **{("w", 0.0, node): 2 for node in there},
    }


def test_where_other_tasks_have_equal_pods_there_is_no_choice() -> None:
    """They cannot be told apart where places are searched."""
    gang = job("e", GAINS, least=2, most=2)
    [workers] = gang["spec"]["tasks"]
    gang["spec"]["tasks"].append({**workers, "name": "ps"})
    gang["spec"]["plugins"]["elastic"].append("--task=w")
    run = simulate([on(FAST, 0), on(SLOW, 1), gang], 50)
    assert len(run.result.placed) == 4


@pytest.mark.parametrize(("speed", "node"), [(GAINS, "n0"), (LESS, "n1")])
def test_the_fast_model_is_for_those_that_gain_most(speed: str, node: str) -> None:
    """A gang has all of it, and the newcomer takes a seat of its surplus only if that is worth it."""
    first = job("first", GAINS, most=8)
    run = simulate([on(FAST, 0), on(SLOW, 1), first, job("e", speed, 100)], 200)
    assert starts(run)["first"] == (0.0, "n0")
    at_s, where = starts(run)["e"]
    assert (where, at_s < 100 + PATIENCE_S) == (node, True)


def test_an_idle_fast_model_is_taken_for_any_gain() -> None:
    run = simulate([on(FAST, 0), on(SLOW, 1), job("e", LESS)], 50)
    assert starts(run)["e"] == (0.0, "n0")


@pytest.mark.parametrize("count", [4, 8])
def test_gangs_that_come_together_share_the_models(count: int) -> None:
    """On the fast model are some more, because a part of it is worth as much as more of the slow one."""
    run = simulate([on(FAST, 0), on(SLOW, 1), *(job(f"e{i}", LESS) for i in range(count))], 100)
    nodes = [node for _, node in starts(run).values()]
    assert len(nodes) == count
    assert count / 2 <= nodes.count("n0") < count


@pytest.mark.long
def test_no_more_gangs_wait_for_a_model_than_have_seats_there() -> None:
    """One has all of the fast model, and the newcomers wait a moment until its surplus is gone."""
    newcomers = [job(f"e{i}", GAINS, 100) for i in range(12)]
    run = simulate([on(FAST, 0), on(SLOW, 1), job("first", GAINS), *newcomers], 300)
    found = [starts(run)[f"e{i}"] for i in range(12)]
    assert max(at_s for at_s, _ in found) < 100 + PATIENCE_S / 2
    assert 4 <= sum(node == "n0" for _, node in found) <= 7


def test_a_model_with_few_seats_is_not_taken_for_many() -> None:
    """Eight members are faster on the slow model than two on the fast one."""
    twice = "1:1 8:8 A100=1:2 A100=8:16"
    run = simulate([on(FAST, 0, 2), on(SLOW, 1), job("e", twice)], 50)
    assert starts(run)["e"] == (0.0, "n1")


@pytest.mark.parametrize("whose", ["a rigid gang", "an elastic gang that yields nothing"])
def test_a_model_without_a_seat_is_none(whose: str) -> None:
    keeps = {"lockstep.dev/yields": "false"}
    taken = elastic("r", 1, 8, annotations=keeps) if "elastic" in whose else rigid("r", 8, 0)
    run = simulate([on(FAST, 0), taken, on(SLOW, 1), job("e", GAINS, 10)], 20)
    assert starts(run)["e"] == (10.0, "n1")


@pytest.mark.long
@pytest.mark.parametrize("level", ["node", "lockstep.dev/rack"])
@pytest.mark.parametrize("surplus", [0, 1])
def test_scattered_seats_are_none_for_a_gang_that_requires_a_level(
    level: str, surplus: int
) -> None:
    """Of the fast model six seats are free, or held by surplus that leaves, in two domains of three; the gang needs
    four in one. With one more in a domain it starts there."""
    close = {"lockstep.dev/topology-required": level}
    for more in (0, 1):
        sizes = {"least": 6 - more, "most": 6 + surplus}
        others = [job(f"r{i}", GAINS, annotations=close, **sizes) for i in range(2)]
        nodes = [on(FAST, 0, 9), on(FAST, 1, 9), on(SLOW, 2, 4)]
        for node in nodes:
            node["metadata"]["labels"]["lockstep.dev/rack"] = node["metadata"]["name"]
        newcomer = job("e", GAINS, 10, least=4, annotations=close)
        run = simulate([*nodes, *others, newcomer], 200, levels=("lockstep.dev/rack",))
        at_s, where = starts(run)["e"]
        assert (where == "n2", at_s < 20) == (not more, True), (more, at_s, where)


def test_who_gets_no_seat_there_in_time_starts_on_any() -> None:
    """Surplus leaves for it, and takes longer than it waits."""
    first = job("first", GAINS)
    notes = first["spec"]["tasks"][0]["template"]["metadata"]["annotations"]
    notes["lockstep.dev/grace"] = f"{3 * PATIENCE_S}s"
    documents = [on(FAST, 0), first, on(SLOW, 2, 4), job("e", GAINS, 10, least=4)]
    waiting = simulate(documents, 10 + PATIENCE_S / 2)
    (pending,) = waiting.result.waiting
    assert f"for at most 60 s tried only on {FAST}, which suits its speeds best" in pending.reason
    assert starts(simulate(documents, 200))["e"] == (10.0 + PATIENCE_S, "n2")


@pytest.mark.parametrize(("grace_s", "start"), [(50, (60.0, "n1")), (90, (22.0 + 60.0, "n0"))])
def test_what_terminates_for_a_gang_is_a_seat_for_it(
    grace_s: int, start: tuple[float, str]
) -> None:
    """It evicts what runs on the fast model, while the slow one is full. When a seat is free there, it is not in vain:
    the gang waits for its own, but no longer than for any other seat."""
    low, high = rigid("low", 8, 0), rigid("high", 8, 0, priorityClassName="high")
    for gang, note in ((low, {"grace": f"{grace_s}s"}), (high, {"runs-for": "20s"})):
        own = gang["spec"]["tasks"][0]["template"]["metadata"]["annotations"]
        own |= {f"lockstep.dev/{name}": value for name, value in note.items()}
    urgent = job("e", GAINS, 10, least=4, priorityClassName="high")
    documents = [on(SLOW, 0), on(FAST, 1), low, high, urgent, priority("high", 9)]
    waits = {each.name: each.reason for each in simulate(documents, 40).result.waiting}
    assert "reserved: node n1; waiting for evicted pods to terminate" in waits["e"]
    run = simulate(documents, 200)
    assert starts(run)["e"] == start
    assert [each.pod for each in run.result.evicted] == [f"low-w-{index}" for index in range(8)]


def test_who_can_never_start_there_starts_on_any_at_once() -> None:
    apart = [on(FAST, 0, 3), on(FAST, 1, 3)]
    whole = {"lockstep.dev/topology-required": "node"}
    documents = [*apart, on(SLOW, 2), job("e", GAINS, 10, least=4, annotations=whole)]
    assert starts(simulate(documents, 200))["e"] == (10.0, "n2")


class Counted(ModelChoices):
    most = 0  # choices of one cycle

    def look(self, gangs: Sequence[ElasticGang]) -> None:
        self.most = max(self.most, self._choices)
        super().look(gangs)


def choices(gangs: list[Json], until_s: float = 10.0) -> int:
    """For how many of them seats were counted in one cycle of a cluster that is full."""
    full = [on(FAST, 0), on(SLOW, 1), rigid("r0", 8, 0), rigid("r1", 8, 0)]
    placed = [(SourceLocation("t", i), raw) for i, raw in enumerate([*full, *gangs])]
    scheduler = new_scheduler(())
    scheduler.elastic.models = counted = Counted()
    read = scenario.read(placed, ("lockstep",), ())
    Simulation(read, scheduler, seed=0, until_s=until_s).run()
    return counted.most


@pytest.mark.long
def test_a_flood_of_gangs_costs_few_choices() -> None:
    """Each counts the seats of all models."""
    assert choices([job(f"e{i}", GAINS, 1) for i in range(40)]) == 1
    unlike = [job(f"e{i}", f"{GAINS[:-2]}{80 + i}", 1) for i in range(40)]
    assert choices(unlike) == CHOICES_MOST
    other = [job(f"e{i}", f"1:1 8:{5 + i / 10} H100=8:80", 1) for i in range(40)]
    assert choices(other) == 0, "without nodes of the model there is no choice"


def test_the_reason_of_others_says_nothing_of_a_choice() -> None:
    run = simulate([on(FAST, 0), on(SLOW, 1), rigid("r", 17, 0)], 20)
    assert "speeds" not in run.result.waiting[0].reason


def test_pods_that_cannot_be_placed_at_all_have_no_choice() -> None:
    wrong = job("e", GAINS)
    template = wrong["spec"]["tasks"][0]["template"]
    template["metadata"]["annotations"]["lockstep.dev/gpu-model"] = "T4"  # and no GPU
    (pending,) = simulate([on(FAST, 0), on(SLOW, 1), wrong], 20).result.waiting
    assert pending.reason.endswith("no container asks for GPUs")


def test_a_model_that_the_pods_exclude_is_none() -> None:
    nodes = [on(FAST, 0), on(SLOW, 1)]
    for node in nodes:
        node["status"]["allocatable"]["nvidia.com/gpu"] = "8"
    narrow = job("e", GAINS)
    template = narrow["spec"]["tasks"][0]["template"]
    template["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    assert starts(simulate([*nodes, narrow], 50))["e"] == (0.0, "n0")
    template["metadata"]["annotations"]["lockstep.dev/gpu-model"] = "T4"
    assert starts(simulate([*nodes, narrow], 50))["e"] == (0.0, "n1")


@pytest.mark.long
@pytest.mark.parametrize("base", range(0, 400, 100))
def test_the_price_is_what_one_more_seat_would_do(base: int) -> None:
    for seed in range(base, base + 100):
        dice = random.Random(seed)
        curves, _, seats = _case(dice, concave=True)
        least = [one.sizes[0] for one in curves]
        without, with_one = (_least_harm(curves, least, seats + more) for more in (0, 1))
        assert price(curves, seats) == pytest.approx(without - with_one, rel=1e-6, abs=1e-9), seed
