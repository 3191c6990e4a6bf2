"""Members without a seat exist as pending pods, so that node autoscalers see them: as many as the range and the queue
allow."""

from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode import elastic_range
from central.kube.decode.decoder import Decoder
from central.kube.decode.fields import FieldError
from central.model.facts import QueueSeen
from central.model.jobspec import ElasticTask
from central.scheduler.elastic.autoscaler import Autoscaler
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.resize_history import ResizeHistory
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang
from protos.names import GPU
from tests.central import factories
from tests.central.controllers.role_controllers import Played, noted
from tests.central.controllers.test_elastic_objects import indexed, sized, sizes
from tests.central.kube import controller_fixtures as made
from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, queue, rigid
from tests.experiments.elastic import Json, simulate

ASKS = {"lockstep.dev/elastic-ask": "pods"}


def late(index: int, at_s: float, cpu: int = 4) -> Json:
    node = machine(index, cpu)
    node["metadata"]["annotations"] = {"lockstep.dev/arrives-at": f"{at_s:g}s"}
    return node


MAKE: list[Any] = [
    elastic,
    lambda name, least, most, **more: sized("Deployment", name, least, most, least, **more),
    lambda name, least, most, **more: indexed(name, least, most, least, **more),
]


@pytest.mark.parametrize("make", MAKE, ids=["Job", "Deployment", "IndexedJob"])
def test_pods_that_wait_for_nodes_start_when_one_comes(make: Any) -> None:
    asking = simulate([machine(0, 4), late(1, 200), make("e", 2, 10, annotations=ASKS)], 400)
    assert sizes(asking, "e", at_s=100) == [4]
    assert sizes(asking, "e", at_s=201) == [8], "they are there already"
    assert not asking.result.evicted
    written = [each.members for each in asking.result.resized]
    assert written[-1:] in ([], [10]), "their size is that of pods that exist"


def test_a_job_and_others_say_it_alike() -> None:
    job = Decoder(("lockstep",), ()).job(elastic("e", 2, 10, annotations=ASKS))
    assert job.spec.elastic is not None
    assert job.spec.elastic.asks
    plain = Decoder(("lockstep",), ()).job(elastic("e", 2, 10))
    assert plain.spec.elastic is not None
    assert not plain.spec.elastic.asks


def jobset(**notes: str) -> Json:
    """A driver and two workers of eight GPUs; six at most."""
    found = made.jobset()
    found["spec"]["replicatedJobs"][1]["replicas"] = 1
    return noted(found, **{"min": "workers: 2", "max": "workers: 6", "ask": "pods", **notes})


def workers(play: Played) -> tuple[int, int]:
    """Pods with a node, and pods."""
    return len(play.placed("workers")), sum("workers" in name for name in play.pods)


@pytest.mark.long
def test_it_asks_for_its_most_and_stays_there() -> None:
    play = Played(jobset(), racks=(4,)).run(100)
    assert workers(play) == (4, 6)
    assert play.written == [4, 6], "and that is not decided again and again"
    assert [cause for _, cause, _ in play.scheduler.elastic.latest] == ["room"], "no change of size"
    assert workers(Played(jobset(ask="none"), racks=(4,)).run(100)) == (4, 4)


@pytest.mark.long
def test_a_queues_capability_bounds_what_is_asked_for() -> None:
    play = Played(jobset(), racks=(4,))
    play.facts.append(QueueSeen("default", capability=((GPU, 40),)))
    assert workers(play.run(100)) == (4, 5)
    play.facts.append(QueueSeen("default", capability=((GPU, 32),)))
    assert workers(play.run(100)) == (4, 4), "a lower one takes back what waits, and no more"
    play.facts.append(QueueSeen("default", capability=((GPU, 16),)))
    assert workers(play.run(100)) == (4, 4)


def test_what_others_of_the_queue_ask_for_counts() -> None:
    made = [sized("Deployment", name, 1, 12, 1, annotations=ASKS) for name in ("a", "b")]
    limit = queue("default", capability={"cpu": "8"})
    run = simulate([limit, machine(0, 4), *made], 600)
    assert sizes(run, "a", "b") == [2, 2]
    last = {each.name: each.members for each in run.result.resized}
    assert sum(last.values()) == 8


@pytest.mark.long
def test_whole_steps_are_asked_for() -> None:
    play = Played(jobset(step="workers: 2"), racks=(4,))
    play.facts.append(QueueSeen("default", capability=((GPU, 40),)))
    assert workers(play.run(100)) == (4, 4), "five are no size"


@pytest.mark.long
def test_what_waits_for_nodes_takes_nothing_from_others() -> None:
    play = Played(jobset(), racks=(4,)).run(60)
    play.other("r", 2)
    play.run(100)
    assert play.others_placed("r") == 2
    assert workers(play) == (2, 6)
    assert not play.evicted


def test_it_leaves_others_their_share() -> None:
    asking = sized("Deployment", "a", 1, 12, 1, annotations=ASKS)
    run = simulate([machine(0, 8), asking, sized("Deployment", "b", 1, 12, 1)], 3000)
    assert sizes(run, "a", "b") == [4, 4]


def test_one_that_asks_still_grows_by_sharing() -> None:
    """Members of another gang leave for those that wait."""
    asking = sized("Deployment", "a", 1, 12, 1, annotations=ASKS)
    asking["metadata"]["annotations"]["lockstep.dev/arrives-at"] = "300s"
    run = simulate([machine(0, 8), sized("Deployment", "b", 1, 12, 1), asking], 3000)
    assert sizes(run, "a", "b", at_s=299) == [0, 8]
    assert sizes(run, "a", "b") == [4, 4]


@pytest.mark.long
def test_a_gang_that_needs_its_least_goes_first() -> None:
    asking = elastic("a", 2, 10, annotations=ASKS)
    run = simulate([machine(0, 4), asking, rigid("r", 3, 100), late(1, 200, 3)], 400)
    assert sizes(run, "a", "r", at_s=205) == [4, 3]


@pytest.mark.parametrize("value", ["Pods", "", "nodes", "x" * 2**20, 3, ["pods"]])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(FieldError, match=r"elastic-ask: .* is neither pods nor none"):
        elastic_range.asks({"lockstep.dev/elastic-ask": value})


@pytest.mark.parametrize(("asked", "goal"), [(6, 8), (4, 8), (5, 6), (8, 8)])
def test_growth_beyond_what_was_asked_for(asked: int, goal: int) -> None:
    """Four members have seats. Those that were asked for count for the goal as they are."""
    key = Gang(("ns", "j", True)).key
    pods = {number: Pod(factories.pod(f"j-{number}"), factories.spec()) for number in range(4)}
    gang = ElasticGang(
        Gang(key),
        ElasticTask("worker", 2, 12, asks=asked > 4),
        frozenset(range(asked)),
        placed=pods,
        pending=frozenset(range(4, asked)),
        used=frozenset(range(asked)),
    )
    autoscaler = Autoscaler()
    autoscaler.histories[key] = ResizeHistory(0.0)
    context = new_scheduler(()).preemption
    found = autoscaler._resized(context, gang, goal, 100.0)
    assert found.members == tuple(range(goal))
    assert (found.cause, found.leaving) == ("room", ())
