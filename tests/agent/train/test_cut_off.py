"""Members that are cut off from the coordinator, in real processes. A step is a collective of its own kind here: each
rank notes that it is there, and waits until all ranks of its generation are."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.train.client import CoordinatorClient
from agent.train.environment import PodPlace
from agent.train.generation_lease import CUT_OFF, CutOff
from agent.train.membership import Membership
from tests.agent.train.coordinators import RunningCoordinator, coordinator
from tests.agent.train.cut_link import CutLink, cut_link
from tests.agent.train.workers import Workers, wait_for, workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SILENT_S = 8  # more than a loaded machine takes for an answer
SCRIPT = """
import json, pathlib, sys, time
import lockstep_train as lt

folder = pathlib.Path(sys.argv[1])
job = lt.join()

def is_there(name):
    return (folder / name).exists()

def exchange(world, step):
    # Whether any rank knows of a newer generation: the same answer on all of them.
    mine = lt.stopping() or job.membership.newest.number > world.generation
    note = folder / f"g{world.generation}-s{step}-r{world.rank}"
    note.with_suffix(".new").write_text(str(int(mine)))
    note.with_suffix(".new").rename(note)
    known = 0
    for rank in range(world.size):
        name = f"g{world.generation}-s{step}-r{rank}"
        while not is_there(name) or is_there("hang"):
            if is_there("end"):
                return False
            time.sleep(0.005)
        known += int((folder / name).read_text())
    return known > 0

for world in job.worlds():
    step = 0
    while not is_there("end"):
        step += 1
        stops = exchange(world, step)
        print(json.dumps([world.generation, world.size, step]), flush=True)
        time.sleep(0.03)
        world.over(step)
        world.ended = stops
        if stops:
            break
"""


class Team:
    def __init__(self, running: RunningCoordinator, made: Workers, folder: Path) -> None:
        self.running, self.made, self.folder = running, made, folder

    def start(self, member: int, **more: str) -> None:
        environment = self.running.environment(member, **more)
        self.made.start(f"m{member}", environment, str(self.folder))

    def trains(self, member: int, size: int, within_s: float = 60.0) -> list[Any]:
        """The newest step of a generation of that size."""

        def newest() -> list[Any]:
            found = [each for each in self.made.said(f"m{member}") if each[1] == size]
            return found[-1] if found else []

        before = newest()
        wait_for(lambda: newest() > before, lambda: self.made.errors(f"m{member}"), within_s)
        return newest()


@contextmanager
def team_and_link(folder: Path, launcher: list[str], *flags: str) -> Iterator[tuple[Team, CutLink]]:
    """A coordinator with a team that has not started, and a link to the coordinator that can be cut."""
    notes = folder / "notes"
    notes.mkdir()
    with (
        coordinator(folder, f"--silent={SILENT_S}", *flags) as running,
        cut_link(int(running.url.rpartition(":")[2])) as link,
        workers(folder / "team", SCRIPT) as made,
    ):
        made.launcher = [*launcher, made.python] if launcher else []
        yield Team(running, made, notes), link


LAUNCHER = ["-m", "lockstep_train.launch", "--stop-wait=1", "--"]


@pytest.mark.parametrize("launcher", [[], pytest.param(LAUNCHER, marks=pytest.mark.nightly)])
def test_the_half_without_the_coordinator_stops_itself(tmp_path: Path, launcher: list[str]) -> None:
    """The half with the coordinator goes on. The others stop by themselves, and take part again when they can."""
    flags = ("--least=2", "--most=4", "--linger=60")
    with team_and_link(tmp_path, launcher, *flags) as (team, link):
        made = team.made
        behind = {"LOCKSTEP_COORDINATOR": link.url}
        for member in range(4):
            team.start(member, **(behind if member > 1 else {}))
        first = [team.trains(member, 4)[0] for member in range(4)]
        assert len(set(first)) == 1
        link.cut()
        half = team.trains(0, 2)
        assert half[0] > first[0]
        for member in (2, 3):
            assert made.ended(f"m{member}") == CUT_OFF, made.errors(f"m{member}")
            assert "this process is cut off" in made.errors(f"m{member}")
        assert team.trains(1, 2)[0] == half[0], "the others go on"
        cut_off = [each for each in made.said("m2", "m3") if each[0] != first[0]]
        assert not cut_off, "they were in no other generation"
        link.heal()
        for member in (2, 3):
            team.start(member, **behind)
        again = [team.trains(member, 4) for member in (0, 2)]
        assert again[0][0] == again[1][0] > half[0]
        (team.folder / "end").touch()
        assert [made.ended(f"m{member}") for member in range(4)] == [0] * 4


@pytest.mark.parametrize("launcher", [pytest.param([], marks=pytest.mark.nightly), LAUNCHER])
def test_what_hangs_in_a_collective_stops_itself(tmp_path: Path, launcher: list[str]) -> None:
    """The main thread reaches no check any more."""
    with team_and_link(tmp_path, launcher, "--least=2", "--most=2") as (team, link):
        made = team.made
        team.start(0)
        team.start(1, LOCKSTEP_COORDINATOR=link.url)
        team.trains(1, 2)
        (team.folder / "hang").touch()
        link.cut()
        assert made.ended("m1") == CUT_OFF, made.errors("m1")
        assert made.running["m0"].poll() is None, "the coordinator answers it"


def test_a_coordinator_that_is_away_ends_nobody(tmp_path: Path) -> None:
    """Steps go on, so the others are there."""
    notes = tmp_path / "notes"
    notes.mkdir()
    flags = ("--least=2", "--most=2", f"--silent={SILENT_S}", f"--store=file:{tmp_path}/q.db")
    with coordinator(tmp_path, *flags) as running, workers(tmp_path / "team", SCRIPT) as made:
        team = Team(running, made, notes)
        for member in range(2):
            team.start(member)
        generation = team.trains(0, 2)[0]
        running.kill()
        time.sleep(2 * SILENT_S)
        assert [each.poll() for each in made.running.values()] == [None, None]
        assert team.trains(1, 2)[0] == generation
        running.start()
        time.sleep(2.0)
        assert team.trains(0, 2)[0] == generation, "nobody was given up"


def test_who_waits_for_the_next_generation_is_cut_off_too(tmp_path: Path) -> None:
    with (
        coordinator(tmp_path, "--most=1", "--silent=2") as running,
        cut_link(int(running.url.rpartition(":")[2])) as link,
    ):
        client = CoordinatorClient(link.url, token_file=str(tmp_path / "token"))
        place = PodPlace(0, 1, "p", "u", "127.0.0.1", 0, "", "")
        member = Membership(client, place).start()
        assert member.lease.span_s == 2.0, "the coordinator says how long"
        found = member.next_live(0, None)
        assert found is not None
        link.cut()
        with pytest.raises(CutOff, match="no answer of the coordinator for 2 s"):
            member.next_live(found.number, 5)
        member.leave(0)


# Its clock is ten minutes behind.
BEHIND = """
import time
real = time.time_ns
time.time_ns = lambda: real() - 600 * 10**9
import lockstep_train as lt
job = lt.join()
for world in job.worlds():
    print(world.generation, flush=True)
    if not world.over(1):
        break
"""


def test_no_clock_is_compared(tmp_path: Path) -> None:
    """A member's pod is replaced on a node whose clock is ten minutes behind: it is younger all the same."""
    with (
        coordinator(tmp_path, "--most=1", "--linger=60") as running,
        workers(tmp_path / "team", SCRIPT) as made,
        workers(tmp_path / "late", BEHIND) as late,
    ):
        notes = tmp_path / "notes"
        notes.mkdir()
        team = Team(running, made, notes)
        team.start(0)
        before = team.trains(0, 1)[0]
        made.kill("m0")
        late.start("m0", running.environment(0))
        assert late.ended("m0") == 0, late.errors("m0")
        assert late.said("m0") == [before + 1]
