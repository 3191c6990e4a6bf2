"""What gangs that share time have run outlives the scheduler: the leader is killed, and its successor knows it from the API
alone. On virtual time, with the parts of the nemesis."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from central.model.past_turns import PastTurns
from central.scheduler.scheduler import Scheduler
from protos.names import GPU
from tests.simulation.nemesis.story import Replica, Story
from tests.simulation.nemesis.virtual_nodes import GROUPS, NODES
from tests.simulation.nemesis.virtual_runtime import one_processor

SHORT_AT_S, SHORT_S, LONG_S = 40.0, 60, 2000
LONG = ("default", "long", True)
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


class TwoGangs(Story):
    """Each needs all GPUs."""

    def _set_up(self, queues: dict[str, str]) -> None:
        self.user.call("POST", "/api/v1/namespaces", {"metadata": {"name": "lockstep-system"}})
        self.nodes.register()
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        spec = {"quantum": "20s", "capability": {GPU: "1000"}}
        made = self.user.call(
            "POST", QUEUES, {**queue, "metadata": {"name": "default"}, "spec": spec}
        )
        assert made.ok
        for name, at_s, runs_s in (("long", 0.0, LONG_S), ("short", SHORT_AT_S, SHORT_S)):
            queues[name] = ""
            self.user.gang(name, NODES, 8, runs_s)
            for pod in self.user.gangs[name]:
                pod["metadata"]["annotations"]["lockstep.dev/suspendable"] = "1s"
            self.user.arrives[name] = at_s
        self._start_outside()

    @contextmanager
    def played(self) -> Iterator[None]:
        with one_processor(self.seed):
            try:
                yield
            finally:
                self.kernel.end()
        assert not self.history.broken
        assert not self.bugs.found

    def until(self, phase: str, most_s: float) -> None:
        """Of the long gang, as its PodGroup says."""
        until = self.kernel.now + most_s
        while self._status().get("phase") != phase:
            assert self.kernel.now < until, f"{phase}: {self._status()}"
            self.kernel.run(self.kernel.now + 1.0)

    def _status(self) -> dict[str, object]:
        found: dict[str, object] = (
            self.user.call("GET", f"{GROUPS}/long").json().get("status") or {}
        )
        return found

    def successor(self) -> Scheduler:
        """Of the leader, which is killed; it has seen everything."""
        leader = self.leader()
        leader.kill(for_s=1000.0)
        self.kernel.run(self.kernel.now + 25.0)
        (new,) = [each for each in self.replicas if each.leads]
        assert new is not leader
        self.replicas.append(Replica(self, f"{len(self.replicas)}"))
        return _scheduler(new)


def _scheduler(replica: Replica) -> Scheduler:
    assert replica.loop is not None
    return replica.loop._scheduler


def _long(scheduler: Scheduler) -> tuple[PastTurns | None, float]:
    """What it had run before, and when it becomes late or did."""
    gang, sharing = scheduler.state.gangs[LONG], scheduler.preemption.time_sharing
    return sharing.past_turns(gang), sharing.latest_start(gang)


@pytest.mark.timeout(300)
def test_the_successor_of_a_killed_leader_knows_what_gangs_have_run() -> None:
    story = TwoGangs(1)
    with story.played():
        story.kernel.run(SHORT_AT_S)
        story.until("Pending", 120.0)
        story.kernel.run(story.kernel.now + 5.0)
        turns, latest_start = _long(_scheduler(story.leader()))
        assert turns is not None
        assert turns.ran_s > 60
        assert turns.contention == 2.0
        suspended = _long(story.successor())
        assert suspended[0] == turns
        assert suspended[1] == pytest.approx(latest_start, abs=1.0)
        story.until("Running", SHORT_S + 30.0)
        story.kernel.run(story.kernel.now + 10.0)
        before = _long(_scheduler(story.leader()))
        runs = _long(story.successor())
        assert runs[0] == before[0] == turns, (
            "nobody else waits now, and the contention of then counts"
        )
        assert runs[1] > latest_start + 20, "and its present run from its pods"
