"""The use of queues outlives its leader: one scheduler writes it down, the next one begins with it."""

import json
import logging

import pytest

from central.controllers.composite import new_scheduler
from central.kube.transport.http_client import Client
from central.kube.write.usage_map import NAME
from central.model.facts import Fact, PastUsageSeen, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.server.usage_store import UsageStore
from tests.central import factories
from tests.central.server.stats.test_surveyor import Direct

MAPS = "/api/v1/namespaces/default/configmaps"


class Told(Direct):
    """A loop that keeps what it is told."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.told: list[Fact] = []

    def put(self, fact: Fact) -> None:
        self.told.append(fact)


def at_work() -> Scheduler:
    made = new_scheduler(factories.LEVELS, half_life_s=600.0)
    facts: list[Fact] = [factories.node("n"), QueueSeen("a"), factories.pod("one", 4, queue="a")]
    schedule_once(made, facts, 1000.0)
    schedule_once(made, [], 1600.0)
    return made


def store(client: Client, loop: Told, *, leads: bool = True) -> UsageStore:
    return UsageStore(client, loop, "default", may_act=lambda: leads)


def test_the_next_leader_begins_with_it(client: Client) -> None:
    made = at_work()
    store(client, Told(made)).check()
    loop = Told(new_scheduler(factories.LEVELS, half_life_s=600.0))
    store(client, loop).restore()
    (past,) = loop.told
    assert isinstance(past, PastUsageSeen)
    assert past.at == 1600.0
    schedule_once(loop.scheduler, [past, QueueSeen("a")], 1700.0)
    queue, again = made.queues.by_name["a"], loop.scheduler.queues.by_name["a"]
    expected = queue.past_usage.means(1600.0, queue.used, queue.deserved, 600.0)
    assert expected
    found = again.past_usage.means(1700.0, {}, {}, 600.0)
    decay = 0.5 ** (100 / 600)  # nothing is used since
    assert dict(found) == pytest.approx({name: mean * decay for name, mean in expected.items()})


def test_nothing_to_begin_with(client: Client) -> None:
    loop = Told(at_work())
    store(client, loop).restore()
    assert loop.told == []


def test_who_does_not_lead_writes_nothing(client: Client) -> None:
    store(client, Told(at_work()), leads=False).check()
    assert client.request("GET", f"{MAPS}/{NAME}").status == 404


def test_rubbish_is_a_warning_and_a_new_beginning(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    raw = {"metadata": {"name": NAME}, "binaryData": {"usage": "AAAA"}}
    assert client.request("POST", MAPS, json.dumps(raw).encode()).ok
    loop = Told(at_work())
    with caplog.at_level(logging.WARNING):
        store(client, loop).restore()
    assert loop.told == []
    assert "begins again" in caplog.text
    store(client, loop).check()
    store(client, loop).restore()
    assert len(loop.told) == 1


def test_nothing_is_written_that_says_nothing(client: Client) -> None:
    """But that queues have no past any more is written once."""
    empty = Told(new_scheduler(factories.LEVELS))
    store(client, empty).check()
    assert client.request("GET", f"{MAPS}/{NAME}").status == 404
    store(client, Told(at_work())).check()
    after = store(client, empty)
    after.restore()
    after.check()
    empty.told.clear()
    store(client, empty).restore()
    assert [past.queues for past in empty.told if isinstance(past, PastUsageSeen)] == [()]
    version = client.request("GET", f"{MAPS}/{NAME}").json()["metadata"]["resourceVersion"]
    after.check()
    again = client.request("GET", f"{MAPS}/{NAME}").json()["metadata"]["resourceVersion"]
    assert again == version
