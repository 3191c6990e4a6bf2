"""Metrics of elastic Jobs: sizes of Jobs that a scheduler resizes, the causes, and that their number is bounded."""

from collections import Counter
from dataclasses import replace

from central.model.decisions import Decision
from central.server import elastic_metrics
from central.server.stats.elastic_rows import ElasticRow
from central.server.stats.gang_counters import GangCounters
from central.server.stats.surveyor import Surveyor
from tests.central.controllers.job.job_api import Api
from tests.central.controllers.job.test_elastic import elastic
from tests.central.server.stats.test_surveyor import Direct
from tests.central.server.test_queue_metrics import Samples, samples

ROW = ElasticRow("team", "train", "q", size=5, target=6, least=2, most=8, gpus=5.0)


class Watched(Api):
    """An API whose scheduler is counted."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes=nodes)
        self.counters = GangCounters(self.cluster)

    def step(self, seconds: float = 1.0) -> list[Decision]:
        decisions = super().step(seconds)
        self.counters.observe([], decisions)
        return decisions

    def metrics(self) -> Samples:
        rows = Surveyor(Direct(self.cluster)).survey(0.0).elastic
        return samples(list(elastic_metrics.families(rows, self.counters.resizes, str)))


def test_sizes_and_causes() -> None:
    api = Watched(nodes=1)
    api.apply(elastic())
    api.settle()
    found = api.metrics()
    job = ("default", "ns", "j")
    assert found["lockstep_elastic_size", *job] == found["lockstep_elastic_target", *job] == 8
    assert found["lockstep_elastic_fulfilment", *job] == 0.6
    grown = found["lockstep_elastic_resizes_total", "default", "room", "grow"]
    assert grown >= 1
    api.step()
    assert api.metrics()["lockstep_elastic_resizes_total", "default", "room", "grow"] == grown
    api.apply(elastic(name="k"))  # its least size needs two seats
    api.settle()
    found = api.metrics()
    assert found["lockstep_elastic_resizes_total", "default", "need", "shrink"] == 1
    assert found["lockstep_queue_elastic_jobs", "default"] == 2
    assert found["lockstep_queue_elastic_members", "default"] == 8
    assert found["lockstep_queue_elastic_members_least", "default"] == 4
    assert found["lockstep_queue_elastic_members_most", "default"] == 24


def test_only_the_largest_jobs_have_series_of_their_own() -> None:
    rows = [replace(ROW, job=f"j{number}", gpus=float(number)) for number in range(1000)]
    found = samples(list(elastic_metrics.families(rows, Counter(), lambda queue: "_other")))
    named = {labels[-1] for name, *labels in found if name == "lockstep_elastic_size"}
    assert len(named) == elastic_metrics.JOBS_MOST
    assert named == {f"j{number}" for number in range(900, 1000)}
    assert found["lockstep_queue_elastic_members", "_other"] == 5000


def test_fulfilment_of_a_job_that_cannot_grow_is_whole() -> None:
    assert replace(ROW, size=2, most=2).fulfilment == 1.0
    assert replace(ROW, size=1).fulfilment == 0.0
    assert ROW.fulfilment == 0.5
