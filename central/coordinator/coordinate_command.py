"""The command `lockstep coordinate`."""

import argparse
import asyncio
import logging
import signal
import ssl
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from central.controllers.training.generation import MembershipRules, first_port
from central.controllers.training.stored_state import StoredState, UnreadableState
from central.coordinator import allocator, program_pages
from central.coordinator.api_store import ApiStore
from central.coordinator.coordinator_app import CoordinatorApp
from central.coordinator.member_port import MemberPort
from central.coordinator.plan_file import PlanFile
from central.coordinator.saving import Saving
from central.coordinator.scheduler_endpoint import SchedulerEndpoint
from central.coordinator.scheduler_link import SchedulerLink
from central.coordinator.state_store import CannotStore, FileStore, NoStore, StateStore
from central.server import argtypes
from protos.common import logs

_LOG = logging.getLogger(__name__)
_LOAD_TRIES = 30
_PLAN_S = 0.25  # between two looks at the plan's file
_SHORTEST_TOKEN = 16
_STARTED_S = 2.0  # after which hardly anything happens for the first time


class CannotServe(Exception):
    """A sentence for the user, exit code 2."""


def run(args: argparse.Namespace) -> int:
    logs.configure("INFO", "text")
    allocator.give_back_early()
    try:
        return asyncio.run(_serve(args))
    except (CannotServe, UnreadableState) as error:
        print(f"lockstep: coordinate: {error}", file=sys.stderr)
        return 2


async def _serve(args: argparse.Namespace) -> int:
    token = _token(args.token_file)
    tls = _tls(args.tls_dir)
    state = StoredState(args.job, _rules(args), args.task_failed_most)
    state.pairs.within_s = args.preflight
    state.slow.replace_after_s = args.replace_slow
    state.standstills.replaces = args.on_hang == "replace"
    scheduler = _scheduler(args)
    kept = _store(args.store, scheduler)
    await _load(state, kept)
    saving = Saving(state, kept)
    await _first_write(saving)
    app = CoordinatorApp(state, saving)
    port = MemberPort(app, token)
    try:
        listening = port.start(args.listen, tls)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CannotServe(f"--listen {args.listen}: {why}") from error
    _LOG.info(
        "serving Job %s on port %d; generation %d, %d members present, store %s",
        args.job,
        listening,
        state.membership.number,
        len(state.membership.present()),
        args.store,
    )
    try:
        return await _until_stopped(app, saving, args, scheduler)
    finally:
        await port.server.close()
        saving.close()


def _scheduler(args: argparse.Namespace) -> SchedulerEndpoint | None:
    if not args.scheduler_dir:
        return None
    try:
        return SchedulerEndpoint.read(Path(args.scheduler_dir), Path(args.scheduler_token_file))
    except (OSError, ValueError) as error:
        _LOG.warning("--scheduler-dir: %s; sizes follow those who join", error)
        return None


def _store(text: str, scheduler: SchedulerEndpoint | None) -> StateStore:
    if text == "none":
        return NoStore()
    if text != "api":
        return FileStore(text.removeprefix("file:"))
    if scheduler is None:
        raise CannotServe(
            "--store api needs the scheduler's address and CA in --scheduler-dir; a Job whose Secret lacks them "
            "was created by an earlier version: create it again, or give it --store=file:/PATH"
        )
    return ApiStore(scheduler)


async def _first_write(saving: Saving) -> None:
    """Raises CannotServe."""
    for tries in range(_LOAD_TRIES):
        if await saving.first_write():
            return
        if saving.fenced.done():
            break
        await asyncio.sleep(_pause_s(tries))
    raise CannotServe(saving.trouble)


def _pause_s(tries: int) -> float:
    return min(5.0, 0.2 * 2.0**tries)


async def _until_stopped(
    app: CoordinatorApp,
    saving: Saving,
    args: argparse.Namespace,
    scheduler: SchedulerEndpoint | None,
) -> int:
    """0: stopped, or the Job is over; 1: it is over because members are missing."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    app.advance()
    writer = asyncio.create_task(saving.run())
    stopping = asyncio.create_task(stop.wait())
    ending = asyncio.create_task(_job_is_over(app, args.linger))
    reading = [asyncio.create_task(one) for one in _plans(args, app, scheduler)]
    loop.call_later(_STARTED_S, program_pages.give_back)
    await asyncio.wait((writer, stopping, ending), return_when=asyncio.FIRST_COMPLETED)
    for each in reading:
        each.cancel()
    if writer.done():
        if error := writer.exception():
            raise error
        raise CannotServe(saving.trouble)
    await saving.saved(2.0)
    writer.cancel()
    return int(ending.done() and not app.state.membership.is_done)


def _plans(
    args: argparse.Namespace, app: CoordinatorApp, scheduler: SchedulerEndpoint | None
) -> Iterator[Coroutine[Any, Any, None]]:
    if args.plan:
        yield _follow(args.plan, app)
    if scheduler is not None:
        yield SchedulerLink(app, scheduler).run()


async def _job_is_over(app: CoordinatorApp, linger_s: float) -> None:
    members = app.state.membership
    while not members.over:
        await asyncio.sleep(_PLAN_S)
    _LOG.info("the Job is over: %s", members.over)
    await asyncio.sleep(linger_s)


async def _follow(path: str, app: CoordinatorApp) -> None:
    file = PlanFile(path)
    while True:
        now = time.monotonic()
        if (plan := file.changed(now)) is not None:
            app.state.membership.set_plan(now, plan)
            app.advance()
        await asyncio.sleep(_PLAN_S)


async def _load(state: StoredState, kept: StateStore) -> None:
    for tries in range(_LOAD_TRIES):
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, kept.load)
            state.read(found, time.monotonic())
        except CannotStore as error:
            _LOG.warning("cannot read the stored state, retrying: %s", error)
            await asyncio.sleep(_pause_s(tries))
        else:
            return
    raise CannotServe(f"--store: not readable after {_LOAD_TRIES} tries")


def _rules(args: argparse.Namespace) -> MembershipRules:
    if args.least > args.most:
        raise CannotServe(f"--least {args.least} is above --most {args.most}")
    if args.spares % (args.replica or 1):
        raise CannotServe(f"--spares {args.spares} is not a multiple of --replica {args.replica}")
    return MembershipRules(
        least=args.least,
        most=args.most,
        spares=args.spares,
        replica=args.replica,
        answer_s=args.answer,
        join_wait_s=args.join_wait,
        hold_s=args.gather,
        below_s=args.below,
        ended_s=args.ended,
        silent_s=args.silent,
        stuck_s=args.stuck,
        hang_s=args.hang_after,
        port=args.leader_port or first_port(args.job),
    )


def _token(path: str) -> bytes:
    try:
        return argtypes.secret("--token-file", path, _SHORTEST_TOKEN)
    except ValueError as error:
        raise CannotServe(str(error)) from error


def _tls(folder: str) -> ssl.SSLContext | None:
    if not folder:
        _LOG.warning("serving plain HTTP; set --tls-dir for anything but a test on one machine")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(Path(folder) / "tls.crt", Path(folder) / "tls.key")
    except (OSError, ssl.SSLError) as error:
        why = (
            error.strerror
            if type(error) is not ssl.SSLError
            else "not a certificate and its key in PEM"
        )
        raise CannotServe(f"--tls-dir {folder}: tls.crt and tls.key: {why}") from error
    return context
