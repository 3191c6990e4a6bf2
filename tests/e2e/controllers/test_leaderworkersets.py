"""LeaderWorkerSet's controller: each replica is a gang, which is restarted as a whole."""

import pytest

from central.model.json_types import Json
from protos.names import SCHEDULER
from tests.e2e.controllers import sources
from tests.e2e.controllers.gangs import Play, template
from tests.e2e.controllers.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.controllers, pytest.mark.timeout(1800)]
WHERE = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets/serve"
VOLCANO = "volcano"
ARGV = ["--leader-elect=false"]


def leaderworkerset(scheduler: str = SCHEDULER) -> Json:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve"},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": 2,
                "workerTemplate": template(8, scheduler, restarts=True),
            },
        },
    }


def ready_replicas(play: Play) -> int:
    found = play.stage.get(WHERE.format(play.namespace))
    return int(found.get("status", {}).get("readyReplicas", 0))


def scale(play: Play, replicas: int) -> None:
    play.stage.patch(WHERE.format(play.namespace), {"spec": {"replicas": replicas}})


def uids(play: Play) -> set[str]:
    return {each["metadata"]["uid"] for each in play.members()}


def test_replicas_are_gangs(stage: Stage) -> None:
    with stage.controller(sources.LWS, ARGV, settings={}):
        play, gang = Play(stage, "lws"), "leaderworkerset/serve/0"
        with play.occupied():
            play.apply(leaderworkerset())
            play.waits_whole(gang, 2, "needs 2 pods x 8 GPUs; the cluster fits 1 of 2")
        play.runs_whole(gang, 2)
        play.until("a ready replica", lambda: ready_replicas(play) == 1)

        old = uids(play)
        play.delete("pod", "serve-0-1")
        play.until("two new pods", lambda: len(uids(play)) == 2 and old.isdisjoint(uids(play)))
        play.runs_whole(gang, 2)
        play.until("a ready replica", lambda: ready_replicas(play) == 1)

        scale(play, 2)
        play.until("four pods", lambda: len(play.members()) == 4)
        why = "needs 2 pods x 8 GPUs; the cluster fits 0 of 2"
        play.until(why, lambda: why in play.reason("leaderworkerset/serve/1"))
        assert len(play.placed()) == 2
        assert ready_replicas(play) == 1
        scale(play, 1)
        play.runs_whole(gang, 2)
        play.delete("leaderworkerset", "serve")
        play.until("its pods to be gone", lambda: not play.members())


def test_replicas_with_the_option_volcano(stage: Stage) -> None:
    """The controller writes a PodGroup for each replica and names it on its pods."""
    settings = {"gangSchedulingManagement": {"schedulerProvider": VOLCANO}}
    with stage.controller(sources.LWS, ARGV, settings=settings):
        play = Play(stage, "lws-volcano")
        with play.occupied():
            play.apply(leaderworkerset(VOLCANO))
            [group] = play.until("its PodGroup", lambda: play.groups("Pending"))
            name = group["metadata"]["name"]
            assert name.startswith("serve-0-")
            assert group["spec"]["minMember"] == 2
            play.waits_whole(name, 2, "needs 2 pods x 8 GPUs; the cluster fits 1 of 2")
        play.runs_whole(name, 2)
        play.until("a ready replica", lambda: ready_replicas(play) == 1)
        play.until("its PodGroup to run", lambda: play.groups("Running"))
        play.delete("leaderworkerset", "serve")
        play.until("all to be gone", lambda: not play.members() and not play.groups())
