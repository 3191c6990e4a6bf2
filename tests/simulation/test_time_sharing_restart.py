"""What gangs that share time have run outlives the scheduler: the leader is killed, and its successor knows it from the
API alone. On virtual time, with the parts of the nemesis."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import GangKey
from protos.names import GPU
from tests.simulation.nemesis.story import Replica, Story
from tests.simulation.nemesis.virtual_nodes import GROUPS, NODES
from tests.simulation.nemesis.virtual_runtime import EPOCH, one_processor

SHORT_AT_S, SHORT_S, LONG_S = 40.0, 60, 2000
LONG, SHORT = ("default", "long", True), ("default", "short", True)
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

    def until(self, gang: str, phase: str, most_s: float) -> None:
        """As its PodGroup says."""
        until = self.kernel.now + most_s
        while self._status(gang).get("phase") != phase:
            assert self.kernel.now < until, f"{gang} {phase}: {self._status(gang)}"
            self.kernel.run(self.kernel.now + 1.0)

    def _status(self, gang: str) -> dict[str, object]:
        reply = self.user.call("GET", f"{GROUPS}/{gang}")
        found: dict[str, object] = reply.json().get("status") or {}
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


def _ran_s(scheduler: Scheduler, key: GangKey, now: float) -> float:
    """In all, with the present run."""
    gang, sharing = scheduler.state.gangs[key], scheduler.preemption.time_sharing
    turns = sharing.past_turns(gang)
    assert turns is not None
    assert turns.contention == 2.0, "the highest counts, though nobody else waits any more"
    return turns.ran_s + turns.runs * (EPOCH + now - turns.until)


@pytest.mark.timeout(300)
def test_the_successor_of_a_killed_leader_knows_what_gangs_have_run() -> None:
    """Killed are the leader of a suspended gang, the one of a gang that runs, and the one of a gang that ends while
    nobody leads."""
    story = TwoGangs(1)
    kernel = story.kernel
    with story.played():
        kernel.run(SHORT_AT_S)
        story.until("long", "Pending", 120.0)
        kernel.run(kernel.now + 5.0)
        suspended_s = _ran_s(_scheduler(story.leader()), LONG, kernel.now)
        assert suspended_s > 60
        assert _ran_s(story.successor(), LONG, kernel.now) == suspended_s
        story.until("short", "Running", 30.0)
        ends_at = max(each.ends_at for each in story.nodes.running.values())
        assert ends_at > kernel.now
        kernel.run(ends_at - 5.0)
        assert _ran_s(story.successor(), SHORT, kernel.now) == pytest.approx(SHORT_S, abs=2.0)
        story.until("long", "Running", 30.0)
        began = min(each.started_at for each in story.nodes.running.values())
        leader, earlier_s = _scheduler(story.leader()), suspended_s - began
        assert _ran_s(leader, LONG, kernel.now) == pytest.approx(earlier_s + kernel.now, abs=3.0)
        leader = story.successor()
        assert _ran_s(leader, LONG, kernel.now) == pytest.approx(earlier_s + kernel.now, abs=3.0)
