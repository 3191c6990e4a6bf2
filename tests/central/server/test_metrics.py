"""/metrics, /healthz and /readyz of the centre: a loop that turns, one that can't be asked, one that
has not begun."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from central.scheduler.state.cluster import Cluster
from central.server.loop import Loop
from central.server.metrics import Status, totals_of
from protos.probes import Probes, Unservable
from tests.central import factories
from tests.central.server.test_loop import World, running
from tests.fakes.eventually import eventually


class Box:
    def __init__(self) -> None:
        self.status = Status(lambda: {("POST", "2xx"): 7, ("GET", "unreachable"): 1})
        self.probes = Probes(
            "127.0.0.1:0",
            self.status.registry,
            unhealthy=self.status.unhealthy,
            unready=self.status.unready,
        )
        self.probes.start()

    def get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.probes.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def samples(self) -> dict[str, float]:
        """By name, with the values of its labels, in their order, behind it."""
        return {
            " ".join([sample.name, *sample.labels.values()]): sample.value
            for family in text_string_to_metric_families(self.get("/metrics")[1])
            for sample in family.samples
        }


@pytest.fixture
def box() -> Iterator[Box]:
    made = Box()
    yield made
    made.probes.stop()


def test_a_centre_that_starts_is_alive_and_not_ready(box: Box) -> None:
    assert box.get("/healthz") == (200, "ok\n")
    status, said = box.get("/readyz")
    assert (status, said) == (
        503,
        "still starting: no certificate, or no answer of the API server\n",
    )
    assert box.samples()["lockstep_api_requests_total unreachable GET"] == 1


def test_a_loop_that_turns(box: Box) -> None:
    listed = threading.Event()
    world = World()
    loop = Loop(Cluster(factories.LEVELS), ready=listed.is_set, meter=box.status)
    box.status.watch(loop)
    with running(loop, world):
        loop.put(factories.node("a"))
        eventually(lambda: box.get("/readyz") == (503, "not everything is listed yet\n"))
        listed.set()
        loop.put(factories.report("a", factories.topology(8, sick=(1, 2))))
        loop.put(factories.pod("one", 2))
        assert world.bound.wait(5.0)
        assert box.get("/readyz") == (200, "ok\n")
        eventually(lambda: box.samples().get("lockstep_decisions_total Bind") == 1)
        loop.put(factories.pod("two", 8))
        eventually(lambda: box.samples().get("lockstep_facts_total PodSeen") == 1)
        told = box.samples()
    assert told["lockstep_gangs_waiting"] == 1
    assert told["lockstep_gpus_unfit"] == 2
    assert (told["lockstep_nodes"], told["lockstep_nodes_ailing"]) == (1, 1)
    assert told["lockstep_turn_seconds_count"] >= 1
    assert told["process_resident_memory_bytes"] > 0


def test_a_loop_that_is_stuck_is_not_alive(box: Box) -> None:
    loop = Loop(Cluster(factories.LEVELS), ready=lambda: True, meter=box.status)
    box.status.watch(loop)
    loop.turned_at = -1e9
    loop.decides = True
    status, said = box.get("/healthz")
    assert status == 503
    assert said.startswith("the last turn ended ")
    told = box.samples()  # the question is not answered
    assert "lockstep_nodes" not in told
    assert told["lockstep_inbox"] >= 0


def test_an_empty_cluster_has_totals_too() -> None:
    assert totals_of(Cluster(factories.LEVELS)).gpus == 0


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "no.such.host.invalid:1", "nowhere", ":"])
def test_an_address_that_is_none_is_one_sentence(listen: str, box: Box) -> None:
    with pytest.raises(Unservable, match="--metrics-listen "):
        Probes(listen, box.status.registry, unhealthy=str, unready=str)
