"""When a watch cannot be trusted to go on, the kind is listed again: after errors, a restored etcd, silence,
and answers that make no sense."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder
from central.kube.transport import watch
from central.kube.transport.http_client import Client
from central.model.facts import Fact, PodGone, PodSeen
from central.model.json_types import Json
from tests.central.kube.api_fixtures import pod
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure
from tests.fakes.cable import Cable
from tests.fakes.eventually import eventually

Connected = Callable[[str], Client]
LIST_S = 60.0  # after which a list without an answer is given up
TOO_LARGE = failure(
    504,
    "Timeout: Too large resource version: 9000, current: 7",
    reason="Timeout",
    details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large"}]},
)


class Api:
    """Pods, and the answers to watches, of which the last is repeated."""

    def __init__(self, *watches: Answer | Callable[[], Answer]) -> None:
        self.pods: dict[str, str] = {"p": ""}  # name: node
        self.later: dict[str, str] | None = None  # from the second list on
        self.version = "7"
        self.lists = 0
        self.watches = iter(watches)
        self.listing: Answer | None = None  # instead of the pods
        self.last: Answer | Callable[[], Answer] = Answer(lines=iter(()))

    def answer(self, call: Call) -> Answer:
        if "watch=1" in call.query:
            self.last = next(self.watches, self.last)
            return self.last() if callable(self.last) else self.last
        self.lists += 1
        if self.listing is not None:
            return self.listing
        pods = self.pods if self.later is None or self.lists == 1 else self.later
        items = [seen(name, node) for name, node in pods.items()]
        return Answer(200, {"metadata": {"resourceVersion": self.version}, "items": items})


def seen(name: str, node: str = "", version: str = "8") -> Json:
    found = pod(name, **({"nodeName": node} if node else {}))
    found["metadata"] |= {"uid": name, "namespace": "default", "resourceVersion": version}
    return found


def event(kind: str, raw: Json) -> Answer:
    return Answer(lines=iter([{"type": kind, "object": raw}]))


def status(code: int, reason: str, message: str = "no") -> Json:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


@pytest.fixture
def follow(connected: Connected) -> Iterator[Callable[[str], tuple[list[Fact], watch.Watches]]]:
    started: list[watch.Watches] = []

    def start(url: str) -> tuple[list[Fact], watch.Watches]:
        facts: list[Fact] = []
        kinds = [
            kind
            for kind in api_kinds.kinds(Decoder(("lockstep",), ("rack",)))
            if kind.resource.full_name == "pods"
        ]
        started.append(watch.start(kinds, connected(url), facts.append))
        return facts, started[-1]

    yield start
    for watches in started:
        watches.stop()


@pytest.mark.parametrize(
    "trouble",
    [
        TOO_LARGE,
        failure(410, "too old", reason="Expired"),
        failure(410, "too old", reason="Gone"),
        failure(500, "etcd is away"),
        failure(400, "invalid resourceVersion"),
        failure(403, "forbidden"),
        event("ERROR", status(410, "Expired")),
        event("ERROR", status(410, "Gone")),
        event("ERROR", status(0, "Expired")),
        event("ERROR", status(504, "Timeout", "Too large resource version: 9000, current: 7")),
        event("ERROR", status(500, "InternalError")),
        event("ERROR", {}),
        event("ADDED", seen("q", version="6")),
        event("MODIFIED", seen("p", version="6")),
        event("BOOKMARK", {"metadata": {"resourceVersion": "6"}}),
        event("SURPRISE", {}),
    ],
    ids=lambda trouble: str(trouble.status),
)
def test_lists_again(follow: Any, trouble: Answer) -> None:
    api = Api(trouble)
    api.later = {"after": "n1"}
    with Scripted(api.answer) as server:
        facts, _ = follow(server.url)
        eventually(lambda: PodGone("p") in facts)
        queries = [call.query for call in server.calls if "watch" not in call.query]
        assert set(queries) == {"limit=1000"}, "a consistent read, without a resourceVersion"


@pytest.mark.parametrize("trouble", [failure(429, "slow down"), Answer(hang_up=True)])
def test_goes_on_where_it_was(follow: Any, trouble: Answer) -> None:
    api = Api(trouble, event("ADDED", seen("q")))
    with Scripted(api.answer) as server:
        facts, _ = follow(server.url)
        eventually(lambda: len(facts) == 2)
        assert api.lists == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        "<html>sign in</html>",
        "",
        "[]",
        {"items": []},
        {"metadata": {}, "items": []},
        {"metadata": {"resourceVersion": "9"}},
        {"metadata": {"resourceVersion": "9"}, "items": {}},
        {"kind": "Status", "metadata": {"resourceVersion": "9"}, "items": []},
    ],
    ids=str,
)
def test_rubbish_is_no_empty_list(follow: Any, body: Json | str) -> None:
    """It would remove every pod."""
    api = Api(TOO_LARGE)
    with Scripted(api.answer) as server:
        facts, watches = follow(server.url)
        eventually(lambda: facts)
        api.listing = Answer(200, body)
        before = api.lists
        eventually(lambda: api.lists > before + 1)
        assert [type(fact) for fact in facts] == [PodSeen]
        (problem,) = watches.out_of_sync().values()
        assert "not a" in problem[1]


def test_a_kind_that_vanishes_for_a_moment(follow: Any) -> None:
    """An API server that starts answers 404 for what it has not loaded yet."""
    api = Api(TOO_LARGE)
    with Scripted(api.answer) as server:
        facts, _ = follow(server.url)
        eventually(lambda: facts)
        api.listing = failure(404, "404 page not found")
        before = api.lists
        eventually(lambda: api.lists > before + 1)
        api.listing = None
        api.watches = iter([Answer(lines=iter([]))])
        before = len(server.calls)
        eventually(lambda: len(server.calls) > before + 3)
        assert [type(fact) for fact in facts] == [PodSeen]


def test_etcd_restored_from_before_a_binding(follow: Any) -> None:
    """The pod is pending again. Its binding must not be believed, so it goes and comes."""
    api = Api(TOO_LARGE)
    api.pods = {"p": "n1"}
    with Scripted(api.answer) as server:
        facts, _ = follow(server.url)
        eventually(lambda: facts)
        api.pods, api.version = {"p": ""}, "3"
        eventually(lambda: len(facts) == 3)
        assert [type(fact) for fact in facts] == [PodSeen, PodGone, PodSeen]
        assert facts[-1].node == ""


def test_list_again(follow: Any) -> None:
    over = threading.Event()

    def quiet() -> Answer:
        return Answer(lines=until(over))

    api = Api(quiet)
    with Scripted(api.answer) as server:
        facts, watches = follow(server.url)
        eventually(lambda: len(server.calls) >= 2)
        assert watches.out_of_sync() == {}
        api.pods = {"q": ""}
        watches.list_again("pods")
        eventually(lambda: api.lists == 2)
        eventually(lambda: PodGone("p") in facts)
        over.set()


def until(over: threading.Event, *lines: Json) -> Iterator[Json]:
    yield from lines
    over.wait(30)


def test_silence(follow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bookmarks come, their absence is noticed; elsewhere nothing is relied on."""
    monkeypatch.setattr(watch, "SILENCE_WITH_BOOKMARKS_S", 0.3)
    over = threading.Event()
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    stalls = itertools.count()

    def stalled() -> Answer:
        next(stalls)
        return Answer(lines=until(over, bookmark))

    api = Api(stalled)
    with Scripted(api.answer) as server:
        follow(server.url)
        eventually(lambda: api.lists >= 3)
        over.set()
    over.clear()
    api = Api(lambda: Answer(lines=until(over)))
    with Scripted(api.answer) as server:
        follow(server.url)
        eventually(lambda: len(server.calls) >= 2)
        time.sleep(1.0)
        assert api.lists == 1
        over.set()


def test_after_silence_the_list_waits_for_no_dead_connection(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine behind all connections is gone, also the idle one that the first list came by."""
    monkeypatch.setattr(watch, "SILENCE_WITH_BOOKMARKS_S", 0.3)
    over = threading.Event()
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    came = {"type": "ADDED", "object": seen("came", version="10")}
    api = Api(lambda: Answer(lines=until(over, bookmark, came)))
    with Scripted(api.answer) as server, Cable(int(server.url.rpartition(":")[2])) as cable:
        facts, _ = follow(cable.url)
        eventually(lambda: any(isinstance(f, PodSeen) and f.name == "came" for f in facts))
        cable.freeze()
        api.pods = {"q": ""}
        began = time.monotonic()
        eventually(lambda: PodGone("p") in facts)
        assert time.monotonic() - began < LIST_S / 2
        over.set()


def test_out_of_sync_for_long(follow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "OUT_OF_SYNC_S", 0.2)
    api = Api(Answer(lines=iter(())), failure(500, "etcd is away"))
    with Scripted(api.answer) as server:
        _, watches = follow(server.url)
        eventually(lambda: api.lists == 1)
        api.listing = failure(500, "etcd is away")
        eventually(lambda: "pods are out of sync for 0 s:" in watches.problem())
        assert watches.problem().endswith("500 etcd is away")
        api.listing = None
        api.watches = iter([Answer(lines=iter(()))])
        eventually(lambda: not watches.problem())


@pytest.mark.parametrize(
    "trouble",
    [TOO_LARGE, failure(410, "too old", reason="Expired"), event("ERROR", status(410, "Expired"))],
    ids=["504", "410", "ERROR"],
)
def test_a_watch_that_never_works_does_not_flood_the_server(follow: Any, trouble: Answer) -> None:
    """Each attempt lists everything, so the attempts become rarer."""

    def again() -> Answer:
        return event("ERROR", status(410, "Expired")) if trouble.lines else trouble

    api = Api(again)
    with Scripted(api.answer) as server:
        follow(server.url)
        eventually(lambda: api.lists >= 2)
        time.sleep(2.0)
        assert api.lists <= 8  # 0.1, 0.2, 0.4, 0.8 s apart at least
