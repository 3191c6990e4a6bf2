"""A watch that brings nothing any more, on virtual time: what happened meanwhile is known within a bound."""

from collections.abc import Callable

import orjson

from central.kube.decode import api_kinds
from central.kube.decode.decoder import Decoder
from central.kube.transport import watch
from central.kube.transport.http_client import Reply
from central.model.facts import Fact, PodSeen
from tests.central import factories
from tests.simulation.nemesis.virtual_api import BOOKMARK_S, Link, VirtualApi, VirtualClient
from tests.simulation.nemesis.virtual_runtime import Kernel

NOTICED_S = 90.0  # where bookmarks come each minute
LATE_S = 15.0  # to list again
PODS = "/api/v1/namespaces/default/pods"


def test_a_watch_that_stalls_is_noticed_within_90_seconds() -> None:
    kernel = Kernel(1)
    api, link = VirtualApi(kernel, lambda key, event: None), Link()
    process = kernel.process("p")
    client = VirtualClient(api, process, link)
    seen: dict[str, float] = {}

    def inbox(fact: Fact) -> None:
        if isinstance(fact, PodSeen):
            seen.setdefault(fact.name, kernel.now)

    def main() -> None:
        kinds = api_kinds.kinds(Decoder(("lockstep",), factories.LEVELS))
        pods = [kind for kind in kinds if kind.resource.full_name == "pods"]
        watch.start(pods, client, inbox, runtime=process.runtime)

    def create(name: str) -> Callable[[], None]:
        spec = {"schedulerName": "lockstep", "containers": [{"name": "main", "image": "x"}]}
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        return lambda: _assert_ok(api.answer("POST", PODS, orjson.dumps(body), "application/json"))

    stalls_at = 3 * BOOKMARK_S + 30.0
    kernel.at(stalls_at - 1.0, create("before"))
    kernel.at(stalls_at, lambda: setattr(link, "stalled", True))
    kernel.at(stalls_at + 1.0, create("meanwhile"))
    process.play(main, stalls_at + 400.0)
    assert seen["before"] < stalls_at
    assert stalls_at < seen["meanwhile"] < stalls_at + NOTICED_S + LATE_S


def _assert_ok(reply: Reply) -> None:
    assert reply.ok, reply
