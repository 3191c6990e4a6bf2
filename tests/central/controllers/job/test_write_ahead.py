"""A Job acts only after its state is written, however long the API server takes for that: whoever takes over must read
why pods are deleted or made."""

import pytest

from central.model.decisions import Create, Decision, Delete, Patch, SetStatus
from tests.central.controllers.job.job_api import Api, Json
from tests.central.controllers.job.test_crashes import STORIES

CALLS = (Create, Delete, Patch, SetStatus)


class SlowApi(Api):
    """A Job's status takes some steps until it is written, and nothing may be asked for the Job meanwhile."""

    def __init__(self, takes_steps: int) -> None:
        self._takes_steps = takes_steps
        self._under_way: list[tuple[int, SetStatus]] = []
        self.waited = 0
        super().__init__(nodes=1)

    def step(self, seconds: float = 1.0) -> list[Decision]:
        self._under_way = [(left - 1, asked) for left, asked in self._under_way]
        for left, asked in self._under_way:
            if not left:
                super()._carry_out(asked)
        self._under_way = [each for each in self._under_way if each[0]]
        self.waited += bool(self._under_way)
        return super().step(seconds)

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, CALLS) and decision.kind != "Event":
            assert not self._under_way, f"{decision} before the Job's status is written"
        if isinstance(decision, SetStatus) and decision.kind == "Job":
            self._under_way.append((self._takes_steps, decision))
        else:
            super()._carry_out(decision)


@pytest.mark.parametrize("takes_steps", [1, 4])
@pytest.mark.parametrize("name", STORIES)
def test_nothing_is_done_for_a_job_while_its_status_is_being_written(
    name: str, takes_steps: int
) -> None:
    raw, steps, end = STORIES[name]
    api = SlowApi(takes_steps)
    if "volumes" in raw["spec"]:
        volume: Json = {"mountPath": "/d", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}
        raw = {**raw, "spec": {**raw["spec"], "volumes": [volume]}}
    api.apply(raw)
    left = list(steps)
    for _ in range(200):
        api.step()
        if left and left[0][0](api):
            left.pop(0)[1](api)
        if not left and api.phase() == end:
            break
    assert api.phase() == end
    assert api.waited or takes_steps == 1


def test_a_state_that_is_refused_is_written_again_with_more_and_more_patience() -> None:
    raw, _, _ = STORIES["it completes"]
    api = Api(nodes=1)
    api.refuses = lambda one: "no" if isinstance(one, SetStatus) and one.kind == "Job" else ""
    api.apply(raw)
    tries = [
        number
        for number in range(120)
        for one in api.step()
        if isinstance(one, SetStatus) and one.kind == "Job"
    ]
    assert 3 <= len(tries) <= 12
    assert not api.pods()
