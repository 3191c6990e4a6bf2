"""Whatever happens to the connection, the facts end up equal to the API server's objects."""

import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from central.kube.decode import api_kinds as watched
from central.kube.decode.decoder import Decoder
from central.kube.transport import watch
from central.kube.transport.http_client import MERGE, Client
from central.model.facts import (
    BudgetGone,
    BudgetSeen,
    Fact,
    GangGone,
    GangSeen,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PrioritySeen,
    QueueGone,
    QueueSeen,
)
from central.model.pod_rules import Expression
from protos import names
from tests.central.controllers.job.job_api import job
from tests.central.custom_resources import DEFINITIONS
from tests.central.kube import native_objects
from tests.central.kube.api_fixtures import GROUPS, PODS, group, node, pod, priority_class, queue
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure
from tests.fakes.cable import Cable
from tests.fakes.eventually import eventually
from tests.fakes.faulty_api import FaultyApi

Connected = Callable[[str], Client]
Make = Callable[[str, dict[str, Any]], dict[str, Any]]


class Inbox:
    """The current fact of each object, and all facts in order."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.pods: dict[str, PodSeen] = {}
        self.nodes: set[str] = set()
        self.gangs: set[str] = set()
        self.queues: dict[str, Fact] = {}
        self._lock = threading.Lock()
        self._started: list[watch.Watches] = []

    def watch(self, client: Client, *names: str, **options: Any) -> watch.Watches:
        self._started.append(watch.start(kinds(*names), client, self.put, **options))
        return self._started[-1]

    def stop(self) -> None:
        for watches in self._started:
            watches.stop()

    def put(self, fact: Fact) -> None:
        with self._lock:
            self.facts.append(fact)
            match fact:
                case PodSeen():
                    self.pods[fact.uid] = fact
                case PodGone():
                    del self.pods[fact.uid]
                case NodeSeen():
                    self.nodes.add(fact.name)
                case NodeGone():
                    self.nodes.remove(fact.name)
                case GangSeen():
                    self.gangs.add(fact.name)
                case GangGone():
                    self.gangs.remove(fact.name)
                case QueueSeen() | QueueGone():
                    self.queues[fact.name] = fact
                case NamespaceSeen() | NamespaceGone() | PrioritySeen():
                    pass  # a cluster has some of its own
                case BudgetSeen() | BudgetGone():
                    pass
                case _:
                    raise AssertionError(fact)

    def names(self) -> set[str]:
        with self._lock:
            return {pod.name for pod in self.pods.values()}


def kinds(*names: str) -> tuple[watched.Kind, ...]:
    every = watched.kinds(Decoder(("lockstep",), ("rack",)))
    return tuple(
        kind
        for kind in every
        if not names or kind.resource.plural in names or kind.full_name in names
    )


@pytest.fixture
def inbox(connected: Connected) -> Iterator[Inbox]:
    """Stopped before the clients are closed."""
    inbox = Inbox()
    yield inbox
    inbox.stop()


def test_existing_objects_and_changes(client: Client, made: Make, inbox: Inbox) -> None:
    made("/api/v1/nodes", node("n1"))
    made(PODS, pod("old"))
    assert inbox.watch(client).wait_synced(10)
    assert (inbox.names(), inbox.nodes, inbox.gangs) == ({"old"}, {"n1"}, set())
    made(PODS, pod("new"))
    made(GROUPS, group("g"))
    client.request("DELETE", f"{PODS}/old")
    client.request("DELETE", "/api/v1/nodes/n1")
    eventually(lambda: (inbox.names(), inbox.nodes, inbox.gangs) == ({"new"}, set(), {"g"}))
    client.request("DELETE", f"{GROUPS}/g")
    eventually(lambda: not inbox.gangs)


def test_queues_and_priority_classes(client: Client, made: Make, inbox: Inbox) -> None:
    queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
    there = made(queues, queue("a", weight=2, capability={"nvidia.com/gpu": "8"}))
    made("/apis/scheduling.k8s.io/v1/priorityclasses", priority_class("urgent", 100))
    patch = json.dumps({"metadata": {"annotations": {names.QUEUE_NAME: "a"}}}).encode()
    assert inbox.watch(client).wait_synced(10)
    client.request("PATCH", "/api/v1/namespaces/default", patch, "application/merge-patch+json")
    uid = there["metadata"]["uid"]
    wanted = QueueSeen("a", weight=2, capability=((names.GPU, 8),), uid=uid)
    assert inbox.queues == {"a": wanted}
    assert PrioritySeen("urgent", 100) in inbox.facts
    eventually(lambda: any(isinstance(f, NamespaceSeen) and f.queue == "a" for f in inbox.facts))
    status = json.dumps({"status": {"running": 3}}).encode()
    client.request("PATCH", f"{queues}/a/status", status, "application/merge-patch+json")
    client.request("DELETE", f"{queues}/a")
    eventually(lambda: inbox.queues == {"a": QueueGone("a")})
    assert inbox.facts.count(wanted) == 1, "changed counts make no fact"


def test_disruption_budgets(client: Client, made: Make, inbox: Inbox) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "x"}}}
    made(budgets, {"metadata": {"name": "keep"}, "spec": spec})
    assert inbox.watch(client, "poddisruptionbudgets", "pods").wait_synced(10)
    covered = (Expression("app", "In", ("x",)),)
    assert inbox.facts == [BudgetSeen("default", "keep", covered, 0)]
    made(PODS, pod("p", nodeName="n1"))
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    patch = json.dumps(ready).encode()
    assert client.request("PATCH", f"{PODS}/p/status", patch, "application/merge-patch+json").ok
    eventually(lambda: BudgetSeen("default", "keep", covered, 1) in inbox.facts)
    client.request("DELETE", f"{budgets}/keep")
    eventually(lambda: BudgetGone("default", "keep") in inbox.facts)


def test_a_list_of_many_pages(client: Client, made: Make, inbox: Inbox) -> None:
    for index in range(25):
        made(PODS, pod(f"p-{index}"))
    assert inbox.watch(client, "pods", page=4).wait_synced(10)
    assert len(inbox.names()) == 25


def test_an_irrelevant_change_is_not_delivered(client: Client, made: Make, inbox: Inbox) -> None:
    made(PODS, pod("p"))
    inbox.watch(client, "pods").wait_synced(10)
    before = len(inbox.facts)
    patch = json.dumps({"metadata": {"annotations": {"note": "x"}}}).encode()
    client.request("PATCH", f"{PODS}/p", patch, "application/merge-patch+json")
    made(PODS, pod("after"))
    eventually(lambda: "after" in inbox.names())
    assert len(inbox.facts) == before + 1


def test_a_broken_watch_is_resumed(
    cable: Cable, client: Client, made: Make, inbox: Inbox, connected: Connected
) -> None:
    inbox.watch(connected(cable.url), "pods").wait_synced(10)
    made(PODS, pod("a"))
    eventually(lambda: inbox.names() == {"a"})
    cable.pull()
    made(PODS, pod("b"))
    client.request("DELETE", f"{PODS}/a")
    cable.plug()
    eventually(lambda: inbox.names() == {"b"})
    assert len(inbox.facts) == 3


def test_after_410_deleted_objects_are_delivered(
    *, api: FaultyApi, cable: Cable, client: Client, made: Make, inbox: Inbox, connected: Connected
) -> None:
    made(PODS, pod("stays"))
    made(PODS, pod("goes"))
    inbox.watch(connected(cable.url), "pods").wait_synced(10)
    cable.pull()
    client.request("DELETE", f"{PODS}/goes")
    made(PODS, pod("comes"))
    api.forget_history("", "pods")
    cable.plug()
    eventually(lambda: inbox.names() == {"stays", "comes"})
    assert [type(fact) for fact in inbox.facts] == [PodSeen, PodSeen, PodGone, PodSeen]


def test_410_while_watching(api: FaultyApi, client: Client, made: Make, inbox: Inbox) -> None:
    inbox.watch(client, "pods").wait_synced(10)
    for index in range(5):
        made(PODS, pod(f"p-{index}"))
        api.forget_history("", "pods")
    eventually(lambda: len(inbox.names()) == 5)


def test_410_in_the_middle_of_a_list(inbox: Inbox, connected: Connected) -> None:
    """The list starts again, and nothing of the broken one is delivered."""
    answers = itertools.chain(
        [
            page("p-1", token="t1"),
            failure(410, "the continue token is too old", reason="Expired"),
            page("p-2", token="t2"),
            page("p-3"),
        ],
        itertools.repeat(Answer(lines=iter(()))),
    )
    with Scripted(lambda _: next(answers)) as server:
        client = connected(server.url)
        watches = inbox.watch(client, "pods")
        assert watches.wait_synced(10)
        assert inbox.names() == {"p-2", "p-3"}
        assert [call.query for call in server.calls[:4]] == [
            "limit=1000",
            "limit=1000&continue=t1",
            "limit=1000",
            "limit=1000&continue=t2",
        ]
        watches.stop()


def page(*names: str, token: str = "") -> Answer:
    items = [pod(name) for name in names]
    for item in items:
        item["metadata"] |= {"uid": item["metadata"]["name"], "namespace": "default"}
    return Answer(200, {"metadata": {"resourceVersion": "7", "continue": token}, "items": items})


def test_bookmarks_advance_the_resource_version(inbox: Inbox, connected: Connected) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}

    def answer(call: Call) -> Answer:
        return Answer(lines=iter([bookmark])) if "watch=1" in call.query else page()

    with Scripted(answer) as server:
        watches = inbox.watch(connected(server.url), "pods")
        eventually(lambda: len(server.calls) >= 3)
        watches.stop()
        assert "resourceVersion=7&" in server.calls[1].query
        assert "resourceVersion=99&" in server.calls[2].query


def test_a_missing_crd_is_checked_again(
    inbox: Inbox, connected: Connected, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    installed = threading.Event()

    def answer(call: Call) -> Answer:
        if not installed.is_set():
            return failure(404, "the server could not find the requested resource")
        if "watch=1" in call.query:
            return Answer(lines=iter(()))
        found = group("g")
        found["metadata"]["namespace"] = "default"
        return Answer(200, {"metadata": {"resourceVersion": "1"}, "items": [found]})

    with Scripted(answer) as server:
        client = connected(server.url)
        watches = inbox.watch(client, "podgroups.scheduling.volcano.sh", recheck_s=0.05)
        assert watches.wait_synced(10)
        eventually(lambda: len(server.calls) > 3)
        installed.set()
        eventually(lambda: inbox.gangs == {"g"})
        watches.stop()
    said = [record.message for record in caplog.records if "installed" in record.message]
    assert said == [
        "podgroups.scheduling.volcano.sh: not installed; checking again every 0.05s",
        "podgroups.scheduling.volcano.sh: is now installed",
    ]


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1", "v1", "v1beta2"])
def test_native_podgroups_that_are_offered_later(
    client: Client, made: Make, inbox: Inbox, version: str
) -> None:
    """When the API server's feature gate is set, or after an upgrade."""
    watches = inbox.watch(client, "podgroups.scheduling.k8s.io", recheck_s=0.05)
    assert watches.wait_synced(10)
    made(DEFINITIONS, native_objects.podgroup_definition(version))
    made(native_objects.groups(version), native_objects.podgroup("g", 2, version))
    eventually(lambda: inbox.gangs == {"podgroup/g"})
    [fact] = [fact for fact in inbox.facts if isinstance(fact, GangSeen)]
    assert (fact.min_member, fact.native_version) == (2, version)
    changed = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    path = f"{native_objects.groups(version)}/g"
    assert client.request("PATCH", path, json.dumps(changed).encode(), MERGE).ok
    eventually(lambda: getattr(inbox.facts[-1], "min_member", 0) == 3)
    client.request("DELETE", path)
    eventually(lambda: not inbox.gangs)


@pytest.mark.parametrize("versions", [("v1", "v2beta1"), ("v2beta1", "v1")])
def test_another_version_takes_the_place_of_a_kinds(
    inbox: Inbox, connected: Connected, versions: tuple[str, str]
) -> None:
    """As with MPIJobs of the training operator and of the MPI operator: nothing counts as gone meanwhile."""
    served: list[tuple[str, list[str]]] = [(versions[0], ["a"])]

    def answer(call: Call) -> Answer:
        version, there = served[-1]
        if call.path == "/apis/kubeflow.org":
            return Answer(200, {"versions": [{"version": "v0"}, {"version": version}]})
        if call.path in ("/apis/kubeflow.org/v0", f"/apis/kubeflow.org/{version}"):
            plural = "others" if call.path.endswith("v0") else "mpijobs"
            return Answer(200, {"resources": [{"name": plural}]})
        if f"/{version}/" not in call.path:
            return failure(404, "page not found")
        if "watch=1" in call.query:
            return Answer(lines=iter(()))
        items = [{"metadata": {"namespace": "default", "name": name}} for name in there]
        roles = {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}}
        found = [{**item, "spec": roles} for item in items]
        return Answer(200, {"metadata": {"resourceVersion": "1"}, "items": found})

    with Scripted(answer) as server:
        watches = inbox.watch(connected(server.url), "mpijobs")
        assert watches.wait_synced(10)
        assert inbox.gangs == {"mpijob/a"}
        served.append((versions[1], ["a", "b"]))
        eventually(lambda: inbox.gangs == {"mpijob/a", "mpijob/b"})
        watches.stop()
    assert not any(isinstance(fact, GangGone) for fact in inbox.facts)


def test_a_namespace_without_the_right_delays_no_other(
    inbox: Inbox, connected: Connected, caplog: pytest.LogCaptureFixture
) -> None:
    bound = threading.Event()

    def answer(call: Call) -> Answer:
        inside = "/namespaces/a/" in call.path
        if not inside and not bound.is_set():
            return failure(403, "jobs is forbidden in the namespace b")
        if "watch=1" in call.query:
            return Answer(lines=iter(()))
        found = job({"w": 1}, name="in-a" if inside else "in-b")
        return Answer(200, {"metadata": {"resourceVersion": "1"}, "items": [found]})

    decoder = Decoder(("lockstep",), ())
    jobs = next(kind for kind in watched.job_kinds(decoder) if kind.resource.plural == "jobs")
    kinds = [replace(jobs, namespace=namespace) for namespace in "ab"]
    facts: list[Fact] = []
    with Scripted(answer) as server:
        watches = watch.start(kinds, connected(server.url), facts.append, recheck_s=0.05)
        assert watches.wait_synced(10)
        eventually(lambda: len(facts) == 1)
        eventually(lambda: not watches.out_of_sync())
        bound.set()
        eventually(lambda: len(facts) == 2)
        watches.stop()
    said = [record.message for record in caplog.records if "forbidden" in record.message]
    assert said == [
        "jobs.batch.volcano.sh in b: jobs is forbidden in the namespace b; checking again every 0.05s"
    ]


def test_kinds_that_an_older_role_does_not_name_delay_no_other(
    inbox: Inbox, connected: Connected
) -> None:
    """After an upgrade of the program alone."""

    def answer(call: Call) -> Answer:
        return failure(403, "podgroups.scheduling.k8s.io is forbidden")

    with Scripted(answer) as server:
        wanted = ("podgroups.scheduling.k8s.io", "jobsets")
        watches = inbox.watch(connected(server.url), *wanted, recheck_s=0.05)
        assert watches.wait_synced(10)
        assert not watches.out_of_sync()
        watches.stop()


def test_malformed_objects_are_skipped_and_logged(
    inbox: Inbox, connected: Connected, caplog: pytest.LogCaptureFixture
) -> None:
    good = page("p").body
    assert isinstance(good, dict)
    good["items"].insert(0, {"metadata": {"name": "odd", "uid": "u"}})

    def answer(call: Call) -> Answer:
        if "watch=1" not in call.query:
            return Answer(200, good)
        return Answer(lines=iter([{"type": "DELETED", "object": {"metadata": {}}}]))

    with Scripted(answer) as server:
        watches = inbox.watch(connected(server.url), "pods")
        assert watches.wait_synced(10)
        assert inbox.names() == {"p"}
        watches.stop()
    assert "skipping malformed pods: pod odd: spec: missing" in caplog.text


def test_a_server_that_starts_later(
    cable: Cable, made: Make, inbox: Inbox, connected: Connected, caplog: pytest.LogCaptureFixture
) -> None:
    made(PODS, pod("p"))
    cable.pull()
    watches = inbox.watch(connected(cable.url), "pods")
    eventually(lambda: "retrying in" in caplog.text)
    assert not watches.wait_synced(0)
    cable.plug()
    assert watches.wait_synced(10)
    assert inbox.names() == {"p"}


def test_stop_does_not_wait_for_the_next_event(client: Client, inbox: Inbox) -> None:
    watches = inbox.watch(client)
    watches.wait_synced(10)
    watches.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("watch-")]
