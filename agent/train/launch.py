"""lockstep-launch [--nproc N] [--for FRAMEWORK] [--stop-wait SECONDS] [--save-wait SECONDS] [--warm MODULES] -- COMMAND

Runs a command in each generation of an elastic Job that this member is in: N processes with the variables of
torch.distributed (and of others by --for). A newer generation ends them by SIGTERM, and SIGKILL after
--stop-wait, which begins when a save under way has ended, and starts them again with their new ranks."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from difflib import get_close_matches
from typing import NoReturn

from . import launch_alone, member_files, pair_check, stop_signal
from .child_processes import ChildProcesses
from .client import CoordinatorError, Stale
from .environment import BadVariable, PodPlace, coordinator, pod_place
from .generation import Generation
from .generation_lease import CUT_OFF, CutOff
from .launch_variables import FRAMEWORKS, variables
from .membership import Membership
from .step_file import SAVE_WAIT_S, STOP_WAIT_S, StepFile
from .step_reports import LauncherReports
from .warm_spares import DEFAULT, WarmSpares

PROGRAM = "lockstep-launch"
BAD_USAGE, TRY_AGAIN = 2, CUT_OFF  # exit codes
TERMINATED = 143  # 128 + SIGTERM, as a shell says it
# A process that lost its neighbour may fail before the coordinator knows of the loss.
NEIGHBOUR_WITHIN_S = 15.0
# Spares import while the processes train, so not while these start. Scripts that report no step get them after this.
SPARES_AFTER_S = 60.0
_LOOK_S = 0.1
# A member whose pair check failed is deleted with its pod; until then it does not come back.
REPLACED_WITHIN_S = 60.0


class Launcher:
    """One member: which generation runs, and how its end is reported."""

    def __init__(self, membership: Membership, given: argparse.Namespace) -> None:
        self._membership, self._given = membership, given
        self._place: PodPlace = membership.place
        self._reports = LauncherReports(membership)
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-")
        self._spares = WarmSpares(given.command, given.warm, given.nproc)

    def run(self) -> int:
        """The exit code of the member."""
        with self._folder, closing(self._spares):
            if unknown := self._spares.unknown():
                _say(
                    f"--warm: the command's Python finds no module {unknown}, so it is not kept imported"
                )
            self._spares.prepare()
            number = 0
            while True:
                found = self._next(number)
                if found is None:
                    return self._end_without_generation()
                number = found.number
                code = self._run_generation(found)
                if code is not None:
                    return code

    def _next(self, number: int) -> Generation | None:
        """The next live generation. SIGTERM ends the wait for it."""
        found: list[Generation | None] = []
        errors: list[CoordinatorError] = []

        def ask() -> None:
            try:
                found.append(self._membership.next_live(number, None))
            except CoordinatorError as error:
                errors.append(error)

        waits = threading.Thread(target=ask, daemon=True)
        waits.start()
        while waits.is_alive() and not stop_signal.came():
            waits.join(_LOOK_S)
        if errors:
            raise errors[0]
        return found[0] if found else None

    def _end_without_generation(self) -> int:
        if stop_signal.came() and not self._membership.left_by_plan:
            self._membership.leave(TERMINATED, "SIGTERM")
            return TERMINATED
        if self._membership.left_by_plan:
            _say(f"member {self._place.member} is not needed any more")
            self._membership.leave(0)
            return 0
        _say("the other members counted this one as lost; it starts again")
        return TRY_AGAIN

    def _run_generation(self, found: Generation) -> int | None:
        """Runs the processes of one generation. Returns the exit code, or None if a newer generation exists."""
        count = self._given.nproc
        framework = self._given.framework
        environments = [
            variables(found, self._place, count, local_rank, framework)
            for local_rank in range(count)
        ]
        _say(
            f"generation {found.number}: ranks {environments[0]['RANK']} to {environments[-1]['RANK']} "
            f"of {environments[0]['WORLD_SIZE']}"
        )
        if found.check_s and not self._check_pairs(found):
            return None
        steps = StepFile.begin(self._folder.name, found.number, self._membership.lease)
        children = ChildProcesses(self._given.command, environments, self._spares)
        self._reports.follow(steps)
        try:
            return self._watch(found, children, steps)
        finally:
            self._stop(children, steps)

    def _check_pairs(self, found: Generation) -> bool:
        """Returns whether the generation's processes may start. Nothing that is wrong with the check stops them."""

        def ended() -> bool:
            return self._outdated(found) or stop_signal.came()

        until = time.monotonic() + found.check_s + pair_check.CONCLUDED_S
        body = pair_check.run(found, self._place, self._given.nproc, self._folder.name, ended)
        body.update(self._place.identity(), generation=found.number)
        while time.monotonic() < until and not ended():
            try:
                answer = self._membership.client.post("/v1/pairs", body)
            except CoordinatorError as error:
                _say(f"the check of pairs is not reported: {error}")
                break
            if answer.get("replaced"):
                _say("its pairs failed the check, so another pod takes its place")
                self._wait(REPLACED_WITHIN_S)
                return False
            if answer.get("done"):
                break
            time.sleep(2 * _LOOK_S)
        return not ended()

    @staticmethod
    def _wait(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not stop_signal.came():
            time.sleep(_LOOK_S)

    def _stop(self, children: ChildProcesses, steps: StepFile) -> None:
        children.stop(self._given.stop_wait, steps.saves, self._given.save_wait)

    def _watch(self, found: Generation, children: ChildProcesses, steps: StepFile) -> int | None:
        spares_at = time.monotonic() + SPARES_AFTER_S
        while True:
            if self._outdated(found):
                return None
            if not self._spares.complete and (
                steps.progress() is not None or time.monotonic() >= spares_at
            ):
                self._spares.prepare()
            if steps.cut_off():
                _say(str(CutOff(self._membership.lease.span_s)))
                return TRY_AGAIN
            if stop_signal.came():
                self._stop(children, steps)
                self._membership.leave(TERMINATED, "SIGTERM")
                return TERMINATED
            if children.all_done():
                self._membership.leave(0)
                return 0
            code = children.failed_code()
            if code is not None:
                return self._failed(found, children, code)
            self._membership.wait_change(self._membership.newest, _LOOK_S)

    def _failed(self, found: Generation, children: ChildProcesses, code: int) -> int | None:
        end_s = time.monotonic() + NEIGHBOUR_WITHIN_S
        lines = children.last_lines()
        children.stop(self._given.stop_wait)
        # Looks at least once, however long the others took to end.
        while found.size > 1 and not stop_signal.came():
            if self._outdated(found):
                return None
            if time.monotonic() >= end_s:
                break
            time.sleep(_LOOK_S)
        _say(f"a process of generation {found.number} ended with code {code}")
        self._membership.leave(code, lines)
        return code

    def _outdated(self, found: Generation) -> bool:
        newest = self._membership.newest
        return newest.over or newest.number > found.number


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.command[:1] == ["--"]:
        given.command = given.command[1:]
    if not given.command:
        _say("a command is needed: lockstep-launch -- python train.py")
        return BAD_USAGE
    stop_signal.install()
    try:
        client = coordinator()
        if client is None:
            _say("LOCKSTEP_COORDINATOR is not set, so the command runs once, as one process")
            if member_files.watched() is not None:
                return launch_alone.run(given.command, given.stop_wait)
            os.execvp(given.command[0], given.command)
        place = pod_place()
        if given.nproc is None:
            given.nproc = 1 if given.framework else max(1, place.gpus)
        return Launcher(Membership(client, place).start(), given).run()
    except (BadVariable, CoordinatorError) as error:
        _say(str(error))
        if isinstance(error, (CutOff, Stale)):
            return TRY_AGAIN
        return BAD_USAGE if isinstance(error, BadVariable) else 1
    except OSError as error:
        _say(f"{given.command[0]}: {error.strerror or error}")
        return 127


class _Parser(argparse.ArgumentParser):
    """A wrong argument is one sentence, as of the other commands, which this package does not import."""

    def error(self, message: str) -> NoReturn:
        unknown, _, words = message.partition("unrecognized arguments: ")
        near = get_close_matches(
            words.partition("=")[0].partition(" ")[0], self._option_string_actions, 1
        )
        hint = f"; did you mean {near[0]}?" if near and not unknown else ""
        self.exit(BAD_USAGE, f"{PROGRAM}: {message}{hint} (see {PROGRAM} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="run a command in each generation of an elastic Job",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--nproc",
        type=_count,
        metavar="N",
        help="processes of this member (default its GPUs, at least 1; with --for 1)",
    )
    parser.add_argument(
        "--for",
        dest="framework",
        default="",
        choices=[name for name in FRAMEWORKS if name],
        help="set the variables of this framework, too",
    )
    parser.add_argument(
        "--stop-wait",
        type=_seconds,
        default=STOP_WAIT_S,
        metavar="SECONDS",
        help="from SIGTERM, or the end of a save under way, to SIGKILL (default %(default)g)",
    )
    parser.add_argument(
        "--save-wait",
        type=_seconds,
        default=SAVE_WAIT_S,
        metavar="SECONDS",
        help="wait at most this long for a save under way (default %(default)g)",
    )
    parser.add_argument(
        "--warm",
        default=DEFAULT,
        metavar="MODULES",
        help="keep one process per rank that has imported these, with commas between, for the next start "
        "(default %(default)s; empty: none)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number from 1 to 1024')
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86400:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds from 0 to 86400')
    return found


def _say(sentence: str) -> None:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
