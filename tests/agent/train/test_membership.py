"""A member's watch of the generations against a real coordinator."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.train.client import CoordinatorClient
from agent.train.environment import PodPlace
from agent.train.generation import Generation
from agent.train.membership import Membership
from tests.agent.train.coordinators import RunningCoordinator, coordinator
from tests.agent.train.workers import wait_for

pytestmark = pytest.mark.slow


def member(running: RunningCoordinator, number: int) -> Membership:
    client = CoordinatorClient(running.url, token_file=str(running.folder / "token"))
    place = PodPlace(number, 1, f"p{number}", "", "127.0.0.1", 0, "", "")
    return Membership(client, place).start()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # connections of the watches
def test_a_late_report_does_not_keep_members_that_stopped_together(tmp_path: Path) -> None:
    """The ranks stopped after step 54, as they agreed. A report of that step comes late, and the
    coordinator's step to stop after is then above it."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"members": [0]}))
    with coordinator(tmp_path, f"--plan={plan}") as running, ThreadPoolExecutor() as pool:
        old, new = member(running, 0), member(running, 1)
        first = old.next_live(0, None)
        assert first is not None
        report = {**old.place.identity(), "generation": 1, "samples": 0, "seconds": 1}
        old.client.post("/v1/report", {**report, "step": 20})
        plan.write_text(json.dumps({"members": [0, 1]}))
        wait_for(lambda: old.newest.stop_after_step == 22, lambda: str(old.newest))
        old.client.post("/v1/report", {**report, "step": 54})
        wait_for(lambda: old.newest.stop_after_step == 56, lambda: str(old.newest))
        both = [pool.submit(old.next_live, 1, 54), pool.submit(new.next_live, 0, None)]
        found: list[Generation | None] = [each.result(timeout=20) for each in both]
    assert [each and (each.number, each.size) for each in found] == [(2, 2), (2, 2)]
