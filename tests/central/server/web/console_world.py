"""A scheduler's loop with nodes and gangs, and the console beside it; tokens are names of users, whose rights are
given. The API server is left out: the tests of the process have it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, QueueSeen
from central.model.identity import AuthFailure, Identity, Role
from central.server.loop import Loop
from central.server.queries import ClusterQueries
from central.server.stats.surveyor import Surveyor
from central.server.web.web_api import WebApi
from central.server.web.web_server import WebServer
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
        known = any(user == token for user, *_ in self.granted)
        return Identity(token) if known else AuthFailure("the API server rejects the token")

    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        return verb == "get" and (identity.user, resource, namespace) in self.granted


@contextmanager
def served(
    facts: Sequence[Fact], rights: Rights | None = None
) -> Iterator[tuple[WebServer, Callable[[Fact], None]]]:
    """The console, and how to tell the scheduler of more."""
    rights, world = rights or Rights(), World()
    loop = Loop(new_scheduler(factories.LEVELS), ready=lambda: True)
    server = WebServer("127.0.0.1:0", WebApi(Surveyor(loop), ClusterQueries(loop)), rights, rights)
    for fact in facts:
        loop.put(fact)
    with running(loop, world):
        eventually(lambda: loop.synced and not loop.inbox_length, 120.0)
        server.start()
        try:
            yield server, loop.put
        finally:
            server.stop()


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
