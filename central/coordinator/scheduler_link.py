"""The coordinator's connection with the scheduler: follows the Job's plan, and tells what the members do.

    link = SchedulerLink(app, SchedulerEndpoint(address, ca, token_file))
    await link.run()                       # until cancelled

The scheduler may be away, restarted or replaced at any moment: the last plan holds, and each report has all of the
present state. A plan with a lower number than one that was received comes from a leader that was replaced, and is
ignored.

Design: docs/design/coordinator.md
"""

import asyncio
import logging
import math
import random
import time

import grpc
import grpc.aio

from central.controllers.training.generation import Place, SizePlan
from central.coordinator.coordinator_app import CoordinatorApp
from central.coordinator.scheduler_endpoint import SchedulerEndpoint
from central.coordinator.training_messages import training_progress, training_report
from central.model import limits, member_numbers
from central.server.throttled_log import ThrottledLog
from protos.stubs import fleet_pb2 as pb

_LOG = logging.getLogger(__name__)
POLL_S = 60.0
BEAT_S = 5.0  # between two reports that say the same
_APART_S = 0.25  # between two reports
_CALL_S = 10.0
_TERM_SHIFT = 32  # of a plan's number
_RETRY_S = (0.5, 10.0)  # first, longest
_OPTIONS = (("grpc.keepalive_time_ms", 20_000), ("grpc.keepalive_timeout_ms", 10_000))


class SchedulerLink:
    def __init__(self, app: CoordinatorApp, endpoint: SchedulerEndpoint) -> None:
        self._app = app
        self._endpoint = endpoint
        self._quiet = ThrottledLog(_LOG)
        credentials = grpc.ssl_channel_credentials(endpoint.ca)
        self._channel = grpc.aio.secure_channel(endpoint.address, credentials, _OPTIONS)
        prefix = "/lockstep.v1.Training"
        self._plan = self._channel.unary_unary(
            f"{prefix}/Plan", pb.PlanRequest.SerializeToString, pb.PlanReply.FromString
        )
        self._send = self._channel.unary_unary(
            f"{prefix}/Report", pb.TrainingReport.SerializeToString, pb.TrainingAck.FromString
        )
        self.plan = 0  # number of the newest one

    async def run(self) -> None:
        try:
            await asyncio.gather(self._follow(), self._report())
        finally:
            await self._channel.close()

    async def _follow(self) -> None:
        version, failures = 0, 0
        while True:
            try:
                request = pb.PlanRequest(version=version, wait_s=POLL_S)
                reply = await self._plan(
                    request, metadata=self._endpoint.metadata(), timeout=POLL_S + _CALL_S
                )
                self._take(reply)
                version, failures = reply.version, 0
            except (grpc.aio.AioRpcError, OSError, ValueError) as error:
                failures += 1
                self._note(error)
                await asyncio.sleep(_delay(failures))

    def _take(self, reply: pb.PlanReply) -> None:
        """Raises ValueError."""
        if reply.plan < self.plan:
            raise ValueError(f"plan {reply.plan} is older than {self.plan}")
        plan = size_plan(reply, time.monotonic())
        if reply.plan > self.plan:
            _LOG.info("plan: %d members; %s", len(plan.members), plan.reason)
        self.plan = reply.plan
        self._app.state.membership.set_plan(time.monotonic(), plan)
        self._app.advance()

    async def _report(self) -> None:
        told, told_at, failures, term = b"", -math.inf, 0, -1
        while True:
            await asyncio.sleep(_APART_S)
            message = training_report(self._app.state, self.plan)
            said = message.SerializeToString()
            if said == told and time.monotonic() - told_at < BEAT_S:
                continue
            self._add_progress(message)
            try:
                await self._send(message, metadata=self._endpoint.metadata(), timeout=_CALL_S)
            except (grpc.aio.AioRpcError, OSError, ValueError) as error:
                failures += 1
                told = b""
                self._note(error)
                await asyncio.sleep(_delay(failures))
            else:
                if failures or term != message.plan >> _TERM_SHIFT:
                    term = message.plan >> _TERM_SHIFT
                    _LOG.info("reported to the scheduler of term %d", term)
                told, told_at, failures = said, time.monotonic(), 0

    def _add_progress(self, message: pb.TrainingReport) -> None:
        app, now = self._app, time.monotonic()
        message.progress.CopyFrom(training_progress(app.state, app.rates, app.pauses, now))
        message.step = app.rates.furthest(app.state.membership.present())
        message.samples_per_s = message.progress.samples_per_s
        if (newest := app.state.checkpoints.newest()) is not None:
            message.checkpoint_age_s = max(0.0, now - newest[1])

    def _note(self, error: Exception) -> None:
        why = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        self._quiet.warning(str(why)[:80], "scheduler: %.300s; the last plan holds, retrying", why)


def _delay(failures: int) -> float:
    first, longest = _RETRY_S
    return min(longest, first * 2.0 ** min(failures - 1, 10)) * random.uniform(0.5, 1.0)


def size_plan(reply: pb.PlanReply, now: float) -> SizePlan:
    """Raises ValueError."""
    if not 0 <= reply.leave_in_s <= limits.DURATION_S:  # also NaN
        raise ValueError(f"leave_in_s: {reply.leave_in_s} is not a number of seconds")
    places = {
        one.member: Place(tuple(one.domains.split("/")), one.pod, one.uid, one.ended)
        for one in reply.places
    }
    return SizePlan(
        reply.plan,
        member_numbers.from_text(reply.members),
        places,
        now + reply.leave_in_s if reply.leaves else None,
        reply.reason,
        reply.least,
        reply.over,
    )
