"""Kubernetes Events in the console, read page by page from the API server."""

from typing import Any
from urllib.parse import parse_qs

from central.server.web.kube_events import PAGES_MOST, KubeEvents
from central.server.web.web_request import Request
from tests.central.kube.scripted_api import Answer, Call, Scripted


def event(number: int, about: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"e{number}", "creationTimestamp": f"2026-01-01T00:00:{number:02}Z"},
        "involvedObject": {"kind": "Pod", "name": about},
        "reason": f"r{number}",
    }


def asked(server: Scripted, names: str) -> list[str]:
    api = {"host": server.url, "proxy": "", "tls_server_name": "", "verify_ssl": True}
    request = Request("/api/kube-events", {"namespace": "team", "names": names})
    return [row["reason"] for row in KubeEvents(api).answer(request, "token")["rows"]]


def test_events_behind_the_first_page_are_shown() -> None:
    pages = [[event(1, "other"), event(2, "mine-0")], [event(3, "mine-1")], [event(4, "mine-0")]]

    def answer(call: Call) -> Answer:
        number = int(parse_qs(call.query).get("continue", ["/0"])[0].removeprefix("/"))
        meta = {"continue": f"/{number + 1}"} if number + 1 < len(pages) else {}
        return Answer(200, {"metadata": meta, "items": pages[number]})

    with Scripted(answer) as server:
        assert asked(server, "mine-0,mine-1") == ["r4", "r3", "r2"]
        assert len(server.calls) == len(pages)


def test_pages_without_end_are_left() -> None:
    endless = Answer(200, {"metadata": {"continue": "on"}, "items": [event(1, "mine")]})
    with Scripted(lambda _: endless) as server:
        assert len(asked(server, "mine")) == len(server.calls) == PAGES_MOST
