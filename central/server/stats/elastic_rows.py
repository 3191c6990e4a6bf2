"""The elastic Jobs, with their sizes."""

from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction

from central.model.resources import GPU_UNITS
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.scheduler import Scheduler

JOBS_AT_ONCE = 50  # between two places where the loop may go on


@dataclass(frozen=True, slots=True)
class ElasticRow:
    """size: members with a node. target: members that the scheduler decided on."""

    namespace: str
    job: str
    queue: str
    size: int
    target: int
    least: int
    most: int
    gpus: float  # GPU equivalents of the members with a node

    @property
    def fulfilment(self) -> float:
        span = self.most - self.least
        return float(Fraction(max(0, self.size - self.least), span)) if span else 1.0


def rows(scheduler: Scheduler) -> Generator[None, None, list[ElasticRow]]:
    """Returns the rows, in the scheduling loop. Yields after some Jobs."""
    found: list[ElasticRow] = []
    for number, elastic in enumerate(scheduler.controllers.elastic_gangs(scheduler.state)):
        if number % JOBS_AT_ONCE == 0:
            yield
        found.append(_row(scheduler, elastic))
    return found


def _row(scheduler: Scheduler, elastic: ElasticGang) -> ElasticRow:
    gang, task = elastic.gang, elastic.task
    worth = scheduler.queues.currency.worth
    equivalents = sum(worth(pod.spec.requests) for pod in elastic.placed.values())
    return ElasticRow(
        gang.namespace,
        gang.owner.rpartition("/")[2] or gang.name,
        gang.queue_name,
        len(elastic.placed),
        len(elastic.members),
        task.least,
        task.most,
        equivalents / GPU_UNITS,
    )
