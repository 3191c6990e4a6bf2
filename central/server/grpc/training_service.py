"""The gRPC service for the coordinators of elastic Jobs (Training): gives them their Jobs' plans, and turns what they
say into facts. A coordinator speaks for the Job whose coordinator its pod is, and for no other.

    training = TrainingService(inbox, authenticator, plans, term)
    facts = training.silent(now)           # called by the loop, with time.monotonic()

Design: docs/design/coordinator.md
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio

from central.controllers.job.training_plan import TrainingPlan
from central.model import limits, member_numbers
from central.model.facts import CoordinatorReported, CoordinatorSilent, Fact
from central.model.identity import Identity
from central.server.grpc import job_progress
from central.server.grpc.auth import Authenticator, CallRefused, Context, GuardedCall
from central.server.grpc.job_progress import JobProgress
from central.server.grpc.rates import PeerRates, Rate
from central.server.grpc.training_plans import PublishedPlan, TrainingPlans
from central.server.grpc.training_states import TrainingStates
from central.server.throttled_log import ThrottledLog
from protos.common.picked import picked
from protos.stubs import fleet_pb2 as pb

log = logging.getLogger(__name__)

LONGEST_POLL_S = 120.0
SILENT_AFTER_S = 15.0  # three heartbeats
GENERATION_BITS = 32
PLACES_MOST = 16_384  # members with their places in one answer, which may have 4 MiB
RATES = Rate(5.0, 20), Rate(500.0, 2_000)  # reports per coordinator, in all
_CHECK_EVERY_S = 1.0
_MOST_TASKS = 1 << 31
_MOST_STEPS = 10**15
STEPS_EVERY_S = 30.0
REPLACED_MOST, UID_MOST = 64, 64  # pods of one report, characters of a uid
# Of a change of size, where processes report no steps, and the most that counts.
UNKNOWN_COST_S, MOST_COST_S = 30.0, 600.0
_COST_WEIGHT = 0.5  # of the newest change in the mean
_TEXTS = {
    "checkpoint": 253,
    "restored": 253,
    "set_aside_why": 1000,
    "standstill": 1000,
    "pairs": 1000,
    "slow": 1000,
}  # most characters


@dataclass(slots=True)
class _Coordinator:
    fact: CoordinatorReported
    at: float = field(default_factory=time.monotonic)
    checkpoint: str = ""
    stepped_at: float = -STEPS_EVERY_S  # when fact.step became what it is
    paused: int = 0  # the generation of the newest pause in fact.resize_cost_s


class TrainingService:
    """term: of this leader; a later leader has a higher one. states: None keeps no coordinator's state."""

    def __init__(
        self,
        inbox: Callable[[Fact], None],
        authenticator: Authenticator,
        plans: TrainingPlans,
        term: int,
        silent_after_s: float = SILENT_AFTER_S,
        *,
        states: TrainingStates | None = None,
    ) -> None:
        self._inbox = inbox
        self._auth = authenticator
        self._plans = plans
        self._term = term
        self._states = states
        self._silent_after_s = silent_after_s
        self._lock = threading.Lock()
        self._heard: dict[str, _Coordinator] = {}  # by pod uid
        self._rates = PeerRates(*RATES)
        self.views = JobProgress(plans)
        self._next_check = 0.0
        self._quiet = ThrottledLog(log)

    def add_to(self, server: grpc.aio.Server) -> None:
        calls = {
            "Plan": GuardedCall("coordinator", pb.PlanRequest, self.plan, self._unfit),
            "Report": GuardedCall("coordinator", pb.TrainingReport, self.report, self._unfit),
            "LoadState": GuardedCall("coordinator", pb.StateRequest, self.load_state, self._unfit),
            "SaveState": GuardedCall("coordinator", pb.StateUpdate, self.save_state, self._unfit),
        }
        server.add_generic_rpc_handlers((self._auth.handlers("lockstep.v1.Training", calls),))

    def silent(self, now: float) -> list[CoordinatorSilent]:
        """Returns the Jobs whose coordinator has been silent for longer than silent_after_s, or is gone; each once
        until its next report."""
        if now < self._next_check:
            return []
        self._next_check = now + _CHECK_EVERY_S
        there = self._plans.pods()
        self._plans.times.forget(there)
        found = []
        with self._lock:
            for uid, known in list(self._heard.items()):
                if uid not in there or now - known.at > self._silent_after_s:
                    del self._heard[uid]
                    found.append(known.fact)
            speaking = {known.fact.uid for known in self._heard.values()}
            pods = set(self._heard)
        self.views.forget(pods)
        return [
            CoordinatorSilent(fact.namespace, fact.name, fact.uid)
            for fact in found
            if fact.uid not in speaking  # its successor is heard
        ]

    def _unfit(self, caller: Identity) -> str:
        if self._plans.job_of(caller.pod_uid) is None:
            return "the token's pod is not the coordinator of an elastic Job, or not known yet"
        return ""

    async def plan(
        self, request: pb.PlanRequest, caller: Identity, context: Context
    ) -> pb.PlanReply:
        if not math.isfinite(request.wait_s) or request.wait_s < 0:
            raise CallRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"wait_s: {request.wait_s} is not a number of seconds",
            )
        wait_s = min(request.wait_s, LONGEST_POLL_S)
        found = await self._plans.fetch(caller.pod_uid, request.version, wait_s)
        if found is None:
            raise self._auth.forbidden(context, caller, self._unfit(caller) or "try again")
        return _reply(found, self._term)

    async def report(
        self, request: pb.TrainingReport, caller: Identity, context: Context
    ) -> pb.TrainingAck:
        plan = self._plan_of(caller, context)
        if not self._rates.take(caller.pod_uid, time.monotonic()):
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "more than 5 reports in a second")
        try:
            fact = self._fact(request, plan, caller.pod_uid)
        except ValueError as error:
            name = f"{plan.namespace}/{plan.name}"
            self._quiet.warning(name, "Job %s: invalid coordinator report: %.500s", name, error)
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        with self._lock:
            known = self._heard.get(caller.pod_uid)
            stepped_at = time.monotonic()
            if known is not None and known.fact.step == fact.step:
                stepped_at = known.stepped_at
            self._heard[caller.pod_uid] = _Coordinator(
                fact,
                checkpoint=request.checkpoint,
                stepped_at=stepped_at,
                paused=max(request.progress.pause.generation, known.paused if known else 0),
            )
        now = time.monotonic()
        self.views.heard(caller.pod_uid, request, now)
        gang = plan.namespace, f"{plan.name}-{plan.uid}"
        if (activities := self._plans.activities.get(gang)) is not None:
            for name, seconds in request.progress.gpu_seconds.items():
                if name in activities or len(activities) < job_progress.ACTIVITIES_MOST:
                    activities[name] = seconds
        self._plans.times.reported(
            caller.pod_uid,
            fact.generation,
            complete=fact.training == plan.members,
            stepped=request.stepped,
            now=now,
            progress=request.progress if request.HasField("progress") else None,
        )
        if known is None or known.fact != fact:
            self._inbox(fact)
        return pb.TrainingAck()

    def _plan_of(self, caller: Identity, context: Context) -> TrainingPlan:
        """Raises CallRefused."""
        plan = self._plans.job_of(caller.pod_uid)
        if plan is None:
            raise self._auth.forbidden(context, caller, self._unfit(caller) or "try again")
        return plan

    async def load_state(
        self, request: pb.StateRequest, caller: Identity, context: Context
    ) -> pb.StateReply:
        plan = self._plan_of(caller, context)
        return await self._kept().load(plan, caller.pod_uid)

    async def save_state(
        self, request: pb.StateUpdate, caller: Identity, context: Context
    ) -> pb.StateAck:
        plan = self._plan_of(caller, context)
        return await self._kept().save(request, plan, caller.pod_uid)

    def _kept(self) -> TrainingStates:
        if self._states is None:
            raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, "this scheduler keeps no states")
        return self._states

    def _fact(
        self, request: pb.TrainingReport, plan: TrainingPlan, uid: str
    ) -> CoordinatorReported:
        """Raises ValueError. A plan of another term is not ours: its generation says nothing."""
        term, generation = divmod(request.plan, 1 << GENERATION_BITS)
        try:
            members = member_numbers.from_text(request.members)
        except ValueError as error:
            raise ValueError(f"members: {error}") from None
        for name, most in _TEXTS.items():
            text = getattr(request, name)
            if len(text) > most or not text.isprintable():
                raise ValueError(f"{name}: not a text of at most {most} printable characters")
        if why := job_progress.mistake(request):
            raise ValueError(why)
        age_s = request.checkpoint_age_s
        if not 0 <= age_s <= limits.DURATION_S:
            raise ValueError(f"checkpoint_age_s: {age_s} is not a number of seconds")
        return CoordinatorReported(
            plan.namespace,
            plan.name,
            plan.uid,
            generation if term == self._term else 0,
            members,
            self._completed_at(request, uid),
            request.checkpoint,
            f"{request.restored} in generation {request.restored_in}" if request.restored else "",
            min(request.set_aside, _MOST_TASKS),
            request.set_aside_why,
            self._step(request, uid) if plan.counts_steps else 0,
            request.standstill,
            request.pairs,
            request.slow,
            frozenset(uid for uid in request.replaced[:REPLACED_MOST] if len(uid) <= UID_MOST),
            self._cost_s(request, uid),
            tuple(sorted((one.members, one.nodes, one.per_s) for one in request.progress.speeds)),
        )

    def _cost_s(self, request: pb.TrainingReport, uid: str) -> float | None:
        """The mean cost of changes of size, by the pauses that were measured."""
        progress = request.progress
        pause = progress.pause
        known = self._heard.get(uid)
        before = known.fact.resize_cost_s if known is not None else None
        if not pause.generation:
            unknown = progress.generation > 1 and not request.step and not progress.queues
            return UNKNOWN_COST_S if unknown else before
        if known is not None and pause.generation <= known.paused:
            return before
        seconds = min(pause.seconds + pause.repeated_s, MOST_COST_S)
        if known is not None and known.paused and before is not None:
            seconds = before + _COST_WEIGHT * (seconds - before)
        return round(seconds, 1)

    def _step(self, request: pb.TrainingReport, uid: str) -> int:
        """A new one at most every STEPS_EVERY_S, since each is a fact for the scheduler."""
        now = time.monotonic()
        with self._lock:
            known = self._heard.get(uid)
            if known is not None and now - known.stepped_at < STEPS_EVERY_S:
                return known.fact.step
        return min(request.step, _MOST_STEPS)

    def _completed_at(self, request: pb.TrainingReport, uid: str) -> float | None:
        """Returns the time of the checkpoint by this process' clock, the same in all reports of one checkpoint."""
        if not request.checkpoint:
            return None
        with self._lock:
            known = self._heard.get(uid)
        if known is not None and known.checkpoint == request.checkpoint:
            return known.fact.checkpoint
        return round(time.time() - request.checkpoint_age_s, 3)


def _reply(found: PublishedPlan, term: int) -> pb.PlanReply:
    plan, left_s = found.plan, 0.0
    if found.leave_by is not None:
        left_s = max(0.0, found.leave_by - time.monotonic())
    return pb.PlanReply(
        version=found.version,
        plan=term << GENERATION_BITS | plan.generation,
        members=member_numbers.to_text(plan.members),
        places=[
            pb.MemberPlace(**picked(one, "member pod uid ended"), domains="/".join(one.path))
            for one in plan.places[:PLACES_MOST]
        ],
        leaves=found.leave_by is not None,
        leave_in_s=left_s,
        reason=plan.reason,
        least=plan.least,
        over=plan.over,
    )
