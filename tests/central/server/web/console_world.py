"""A scheduler's loop with nodes and gangs, and the console beside it; tokens are names of users, whose rights are
given. The API server is left out: the tests of the process have it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, GangSeen, PodGone, PodSeen, QueueSeen
from central.model.identity import AuthFailure, Identity, Role
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.gpu_uses import GpuUses
from central.server.history import pictures
from central.server.history.gang_records import GangRecords
from central.server.history.history_store import HistoryStore
from central.server.history.past_cluster import PastCluster
from central.server.loop import Loop
from central.server.queries import ClusterQueries
from central.server.stats.sliced_question import SlicedQuestion
from central.server.stats.surveyor import Surveyor
from central.server.web.record_api import RecordApi
from central.server.web.web_api import WebApi
from central.server.web.web_server import WebServer
from central.server.web.what_if_process import WhatIfProcess
from protos.names import GPU
from tests.central import factories
from tests.central.server.test_loop import World, running
from tests.fakes.eventually import eventually

Right = tuple[str, str, str]  # user, resource, namespace
EVERYTHING = ("nodes", "pods", "queues.scheduling.volcano.sh")


class Rights:
    """Tokens and rights of users: the token is the user's name."""

    def __init__(self, *granted: Right) -> None:
        self.granted = {*granted, *(("admin", resource, "") for resource in EVERYTHING)}

    def implausible(self, token: str, role: Role) -> str:
        return ""

    def review(self, token: str, role: Role) -> Identity | AuthFailure:
        known = any(user == token and ":" not in user for user, *_ in self.granted)
        return Identity(token) if known else AuthFailure("the API server rejects the token")

    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        names = (identity.user, *identity.groups)
        return verb == "get" and any((name, resource, namespace) in self.granted for name in names)


@contextmanager
def served(
    facts: Sequence[Fact],
    rights: Rights | None = None,
    past: PastCluster | None = None,
    what_if: WhatIfProcess | None = None,
    *,
    uses: GpuUses | None = None,
    listen: str = "127.0.0.1:0",
    **more: Any,
) -> Iterator[tuple[WebServer, Callable[[Fact], None]]]:
    """The console, and how to tell the scheduler of more."""
    rights, world = rights or Rights(), World()
    scheduler = new_scheduler(factories.LEVELS)
    records = GangRecords(scheduler, uses)
    if past is not None:
        records.adopt(past._store.open_records())
    loop = Loop(
        scheduler,
        ready=lambda: True,
        on_cycle=lambda facts, decisions, _: records.observe(facts, decisions),
    )
    recorded = RecordApi(loop, records, past)
    api = WebApi(Surveyor(loop), ClusterQueries(loop), recorded, past, what_if=what_if is not None)
    server = WebServer(listen, api, rights, rights, what_if=what_if, **more)
    for fact in facts:
        loop.put(fact)
    with running(loop, world):
        eventually(lambda: loop.synced and not loop.inbox_length, 120.0)
        server.start()
        try:
            yield server, loop.put
        finally:
            server.stop()


def remembered(file: Path, nodes: int, hours: int = 12, every_min: int = 10) -> PastCluster:
    """A history of a cluster that fills up: each picture has one more gang than the one before, and the job `sweep`
    grows and shrinks."""
    end = int(time.time()) // 60 * 60
    store = HistoryStore(str(file), 512 << 20, time.time)
    facts = cluster(nodes)
    base = [fact for fact in facts if not isinstance(fact, GangSeen | PodSeen)]
    pods = [fact for fact in facts if isinstance(fact, GangSeen | PodSeen)]
    scheduler = new_scheduler(factories.LEVELS)
    surveyor, records = Surveyor(AtOnce(scheduler)), GangRecords(scheduler)
    schedule_once(scheduler, [*base, factories.gang("sweep", 1)], 1000.0)
    moments = hours * 60 // every_min
    sweep = 0
    for at in range(moments):
        some: list[Fact] = [*pods[at * len(pods) // moments : (at + 1) * len(pods) // moments]]
        size = 1 + abs(at % 8 - 4)
        pod = partial(factories.pod, gpus=1, gang="sweep")
        some += [pod(f"sweep-{index}") for index in range(sweep, size)]
        some += [PodGone(f"uid-sweep-{index}") for index in range(size, sweep)]
        sweep = size
        now = end - (moments - 1 - at) * every_min * 60
        records.observe(some, schedule_once(scheduler, some, float(now)))
        question = SlicedQuestion(records.steps)
        while not question(scheduler):
            pass
        store.keep_records(question.answer)
        survey = surveyor.survey(0.0)
        store.add_picture(now, pictures.sample(survey), pictures.picture(survey))
    return PastCluster(store)


class AtOnce:
    """A loop that answers at once."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = 0.0) -> Any:
        return question(self._scheduler)


def cluster(nodes: int, rack: int = 4) -> list[Fact]:
    """Nodes in racks, two queues, gangs that run and gangs that wait; one GPU is unhealthy, one node cordoned."""
    facts: list[Fact] = [
        QueueSeen("research", deserved=((GPU, 4 * nodes),)),
        QueueSeen("prod", deserved=((GPU, 2 * nodes),), guarantee=((GPU, 8),)),
        QueueSeen("llm", parent="research", weight=2),
    ]
    now = time.time()
    for number in range(nodes):
        name = f"node-{number:04}"
        bad = (3,) if number == 1 else ()
        facts.append(
            factories.node(
                name,
                rack=f"r{number // rack:03}",
                block=f"b{number // (rack * 16)}",
                unschedulable=number == nodes - 1,
            )
        )
        facts.append(factories.report(name, factories.topology(8, sick=bad)))
    for number in range(max(2, nodes * 3 // 4) // 2):
        size, gang = 2, f"train-{number}"
        queue = ("llm", "prod")[number % 2]
        facts.append(factories.gang(gang, size, queue=queue, created=now - 9000))
        facts += [factories.pod(f"{gang}-{rank}", 8, gang) for rank in range(size)]
    facts.append(factories.gang("giant", nodes, queue="llm", created=now - 7500))
    facts += [factories.pod(f"giant-{rank}", 8, "giant") for rank in range(nodes)]
    facts.append(factories.pod("never", 9, queue="prod", created=now - 600))
    facts.append(factories.pod("small", 2, queue="prod", created=now - 30))
    return facts
