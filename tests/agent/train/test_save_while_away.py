"""job.save() while the coordinator cannot be reached: a real one, behind a link that is cut."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.train.client import CoordinatorClient, Unreachable
from agent.train.environment import PodPlace
from agent.train.generation_lease import SPAN_S
from agent.train.job import SAVE_WITHIN_S, Job
from agent.train.membership import Membership
from agent.train.sources import NoChange
from agent.train.world import World
from tests.agent.train.coordinators import RunningCoordinator, coordinator
from tests.agent.train.cut_link import CutLink, cut_link
from tests.agent.train.workers import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
UNRAISABLE = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # connections of the watches


@dataclass
class Member:
    job: Job
    link: CutLink
    running: RunningCoordinator

    def save(self, step: int) -> None:
        self.job.save(step, lambda path: Path(path).write_text(f"weights {step}"))

    def latest(self) -> int | None:
        """The step of the newest complete checkpoint; None: there is none."""
        saved = self.job.latest()
        return None if saved is None else saved.step


@contextmanager
def member(folder: Path, *, within_s: float, follows: bool = False) -> Iterator[Member]:
    """The only one of its Job. follows: a worker of tasks; else one that takes steps with others."""
    with coordinator(folder) as running, cut_link(int(running.url.rpartition(":")[2])) as link:
        url = link.url
        client = CoordinatorClient(url, token_file=str(folder / "token"))
        place = PodPlace(0, 1, "train-worker-0", "", "127.0.0.1", 0, "", "")
        job = Job(Membership(client, place).start(), None, str(folder / "checkpoints"))
        assert job.membership is not None
        if follows:
            job.follow()
        else:
            found = job.membership.next_live(0, None)
            assert found is not None
            job.world = World(NoChange(), generation=found.number)
        job.save_within_s = within_s
        yield Member(job, link, running)


@UNRAISABLE
def test_a_checkpoint_is_left_out_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other ranks wait for this one at their next step."""
    with member(tmp_path, within_s=1.5) as one:
        one.save(1)
        one.link.cut()
        with caplog.at_level(logging.WARNING):
            one.save(2)
        assert [each for each in caplog.messages if each.startswith("no checkpoint at step 2: ")]
        one.link.heal()
        assert one.latest() == 1
        one.save(3)
        assert one.latest() == 3


@UNRAISABLE
def test_one_that_was_begun_and_cannot_be_told_is_not_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All of it is written, but nobody counted its parts: after a restart the others may have gone on from another."""
    with member(tmp_path, within_s=1.5) as one:

        def write(path: str) -> None:
            Path(path).write_text("weights")
            one.link.cut()

        with caplog.at_level(logging.WARNING):
            one.job.save(7, write)
        assert "checkpoint ckpt-7-1 is not complete" in caplog.text
        one.link.heal()
        assert one.latest() is None


@UNRAISABLE
def test_a_worker_of_tasks_waits_for_the_coordinator(tmp_path: Path) -> None:
    """Nobody waits for it, and its tasks are only done with a checkpoint."""
    with member(tmp_path, within_s=0.0, follows=True) as one:
        one.link.cut()
        saving = threading.Thread(target=one.save, args=(1,), daemon=True)
        saving.start()
        time.sleep(2.0)
        assert saving.is_alive()
        one.link.heal()
        saving.join(60)
        assert not saving.is_alive()
        wait_for(lambda: one.latest() == 1, one.running.log)


@UNRAISABLE
@pytest.mark.parametrize("asked_before", [True, False])
def test_the_limit_holds_where_nothing_is_answered(tmp_path: Path, *, asked_before: bool) -> None:
    """One request alone may take ten seconds, and was sent twice where its connection had been idle."""
    with coordinator(tmp_path) as running, cut_link(int(running.url.rpartition(":")[2])) as link:
        url = link.url
        client = CoordinatorClient(url, token_file=str(tmp_path / "token"))
        if asked_before:
            client.get("/v1/status", {})
        link.cut()
        began = time.monotonic()
        with pytest.raises(Unreachable):
            client.insist("/v1/checkpoint/begin", {}, within_s=1.0)
        assert time.monotonic() - began < 8.0
        assert link.accepted == 1, "what timed out once is not asked again at once"
        client.close()


def test_the_others_do_not_take_themselves_for_cut_off_meanwhile() -> None:
    """They take no step while this rank saves. Where the coordinator answers none of them either, they end after
    SPAN_S; so a save that was begun and one that follows are over before that."""
    assert SAVE_WITHIN_S + 10.0 < SPAN_S
