"""/metrics, /healthz and /readyz of the scheduler: a loop at work, one that is stuck, one that has not
started."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from central.controllers.composite import new_scheduler
from central.model.facts import NodeOffers
from central.server.loop import Loop
from central.server.metrics import Metrics, totals_of
from protos.common.probes import Probes, Unservable
from tests.central import factories
from tests.central.server.test_loop import World, running
from tests.fakes.eventually import eventually


class Server:
    def __init__(self) -> None:
        self.metrics = Metrics(lambda: {("POST", "2xx"): 7, ("GET", "unreachable"): 1})
        self.probes = Probes(
            "127.0.0.1:0",
            self.metrics.registry,
            unhealthy=self.metrics.unhealthy,
            unready=self.metrics.unready,
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
        """By name and label values, in the labels' order."""
        return {
            " ".join([sample.name, *sample.labels.values()]): sample.value
            for family in text_string_to_metric_families(self.get("/metrics")[1])
            for sample in family.samples
        }


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.probes.stop()


def test_a_scheduler_that_starts_is_alive_and_not_ready(server: Server) -> None:
    assert server.get("/healthz") == (200, "ok\n")
    status, output = server.get("/readyz")
    assert (status, output) == (
        503,
        "starting: no certificate yet, or the API server does not answer\n",
    )
    assert server.samples()["lockstep_api_requests_total unreachable GET"] == 1


def test_a_loop_at_work(server: Server) -> None:
    listed = threading.Event()
    world = World()
    loop = Loop(
        new_scheduler(factories.LEVELS), ready=listed.is_set, on_cycle=server.metrics.observe_cycle
    )
    server.metrics.watch_loop(loop)
    with running(loop, world):
        loop.put(factories.node("a"))
        eventually(lambda: server.get("/readyz") == (503, "the initial sync is not complete\n"))
        listed.set()
        loop.put(factories.report("a", factories.topology(8, sick=(1, 2))))
        loop.put(factories.pod("one", 2))
        assert world.bound.wait(60.0)
        assert server.get("/readyz") == (200, "ok\n")
        eventually(lambda: server.samples().get("lockstep_scheduler_decisions_total Bind") == 1)
        loop.put(NodeOffers("a", offered=False))
        loop.put(factories.pod("two", 8))
        eventually(lambda: server.samples().get("lockstep_scheduler_facts_total PodSeen") == 1)
        samples = server.samples()
    assert samples["lockstep_scheduler_wakeups_total node capacity freed"] > 0
    assert (samples["lockstep_nodes"], samples["lockstep_nodes_unhealthy"]) == (1, 1)
    assert samples["lockstep_nodes_not_offered"] == 1
    assert samples["lockstep_scheduler_cycle_duration_seconds_count"] >= 1
    assert (samples["lockstep_scheduler_synced"], samples["lockstep_scheduler_leader"]) == (1, 0)
    assert samples["process_resident_memory_bytes"] > 0


def test_a_loop_that_is_stuck_is_not_alive(server: Server) -> None:
    loop = Loop(
        new_scheduler(factories.LEVELS), ready=lambda: True, on_cycle=server.metrics.observe_cycle
    )
    server.metrics.watch_loop(loop)
    loop.last_cycle_at = -1e9
    loop.synced = True
    status, output = server.get("/healthz")
    assert status == 503
    assert output.startswith("the last scheduling cycle began ")
    samples = server.samples()  # the loop does not answer
    assert "lockstep_nodes" not in samples
    assert samples["lockstep_scheduler_inbox_length"] >= 0


def test_an_empty_cluster_has_totals_too() -> None:
    assert totals_of(new_scheduler(factories.LEVELS))["nodes"] == 0


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "no.such.host.invalid:1", "nowhere", ":"])
def test_an_address_that_is_none_is_one_sentence(listen: str, server: Server) -> None:
    with pytest.raises(Unservable, match="--metrics-listen "):
        Probes(listen, server.metrics.registry, unhealthy=str, unready=str)
