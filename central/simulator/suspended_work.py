"""The work that pods had done when they were suspended: the next pod of the name continues from there.

A pod that can be suspended (lockstep.dev/suspendable) saves its work when it is evicted. Its successor needs what its
suspension costs, and then runs for the rest of its lockstep.dev/runs-for.

Design: docs/design/time-sharing.md
"""

from central.simulator.sim_pod import SimPod

PodName = tuple[str, str]  # namespace, name


class SuspendedWork:
    def __init__(self) -> None:
        self._done_s: dict[PodName, float] = {}

    def run_time_s(self, sim_pod: SimPod) -> float | None:
        """Returns the seconds from its start to its end; None if it does not end by itself."""
        runs_s, name = sim_pod.plan.runs_s, _name(sim_pod)
        if runs_s is None or name not in self._done_s:
            return runs_s
        return max(0.0, runs_s - self._done_s[name]) + _cost_s(sim_pod)

    def suspended(self, sim_pod: SimPod, now: float) -> float:
        """The pod is evicted. Returns the seconds of its present run that are lost."""
        ran_s, name = now - sim_pod.started, _name(sim_pod)
        if sim_pod.seen.suspension_s is None:
            return ran_s
        lost_s = min(ran_s, _cost_s(sim_pod)) if name in self._done_s else 0.0
        self._done_s[name] = self._done_s.get(name, 0.0) + ran_s - lost_s
        return lost_s

    def ended(self, sim_pod: SimPod) -> None:
        self._done_s.pop(_name(sim_pod), None)


def _name(sim_pod: SimPod) -> PodName:
    return sim_pod.seen.namespace, sim_pod.seen.name


def _cost_s(sim_pod: SimPod) -> float:
    return sim_pod.seen.suspension_s or 0.0
