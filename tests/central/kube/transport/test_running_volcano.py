"""Whether Volcano runs: pods as its chart installs them, and pods of tenants that only look so."""

from collections.abc import Callable
from typing import Any

import pytest

from central.kube.transport import running_volcano as module
from central.kube.transport.access_review import AccessReviewer
from central.kube.transport.http_client import Client
from tests.central.kube.scripted_api import Answer, Call, Scripted, failure

Connected = Callable[[str], Client]
MANAGER = "system:serviceaccount:volcano-system:volcano-controllers"
SCHEDULER = "system:serviceaccount:volcano-system:volcano-scheduler"


def pod(
    name: str, app: str, account: str, namespace: str = "volcano-system", phase: str = "Running"
) -> Any:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"serviceAccountName": account, "containers": [{"name": app, "image": "i"}]},
        "status": {"phase": phase},
    }


CONTROLLERS = pod("volcano-controllers-7c", "volcano-controller", "volcano-controllers")
THE_SCHEDULER = pod("volcano-scheduler-5b", "volcano-scheduler", "volcano-scheduler")


def found(
    connected: Connected, pages: list[Any], trusted: tuple[str, ...] = (MANAGER, SCHEDULER)
) -> Any:
    """What is found on a cluster with these pages of labelled pods, and the calls that it took."""
    calls: list[Call] = []

    def answer(call: Call) -> Answer:
        calls.append(call)
        if call.method == "POST":
            spec = call.body["spec"]
            assert spec["resourceAttributes"] == {
                "verb": "delete", "group": "", "resource": "pods", "namespace": ""}  # fmt: skip
            return Answer(201, {"status": {"allowed": spec["user"] in trusted}})
        number = sum(each.method == "GET" for each in calls) - 1
        if isinstance(pages[number], Answer):
            return pages[number]  # type: ignore[no-any-return]
        more = {"continue": f"page{number + 1}"} if number + 1 < len(pages) else {}
        return Answer(200, {"items": pages[number], "metadata": more})

    with Scripted(answer) as server:
        client = connected(server.url)
        return module.running_volcano(client, AccessReviewer(client)), calls


def test_scheduler_and_controllers_are_found(connected: Connected) -> None:
    names, calls = found(connected, [[THE_SCHEDULER], [CONTROLLERS]])
    assert names == ("volcano-system/volcano-scheduler-5b", "volcano-system/volcano-controllers-7c")
    assert "labelSelector=app+in+%28volcano-scheduler%2Cvolcano-controller%29" in calls[0].query


def test_none(connected: Connected) -> None:
    assert found(connected, [[]])[0] == ()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_do_not_count(connected: Connected, phase: str) -> None:
    ended = {**THE_SCHEDULER, "status": {"phase": phase}}
    assert found(connected, [[ended]])[0] == ()


def test_a_tenants_pod_with_the_label_does_not_count(connected: Connected) -> None:
    fake = pod("x", "volcano-scheduler", "default", "team-a")
    assert found(connected, [[fake, CONTROLLERS]])[0] == ("volcano-system/volcano-controllers-7c",)


def test_each_account_is_asked_about_once_and_pages_end(connected: Connected) -> None:
    fakes = [pod(f"x{n}", "volcano-scheduler", "default", "team-a") for n in range(module.PAGE)]
    _, calls = found(connected, [fakes] * 50)
    assert sum(call.method == "GET" for call in calls) == module.MOST // module.PAGE
    assert sum(call.method == "POST" for call in calls) == 1


def test_a_refused_list_is_no_volcano(connected: Connected) -> None:
    assert found(connected, [failure(403, "forbidden")])[0] == ()
