"""Messages with which the coordinator reports to the scheduler.

Design: docs/design/coordinator.md
"""

from central.controllers.training.pauses import PauseMeter
from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_queue import TaskQueue
from central.coordinator.request_rates import RequestRates
from central.model import limits, member_numbers
from protos.stubs import fleet_pb2 as pb

_WHY = 300  # characters of the reason of a task that was set aside
_LINE = 1000


def training_report(state: StoredState, plan: int) -> pb.TrainingReport:
    """Returns the report without values that change all the time."""
    members = state.membership
    newest = state.checkpoints.newest()
    restored, restored_in = state.checkpoints.restored
    return pb.TrainingReport(
        plan=plan,
        members="" if members.over else member_numbers.to_text(members.training()),
        checkpoint=newest[0] if newest is not None else "",
        restored=restored,
        restored_in=restored_in,
        set_aside=sum(len(queue.set_aside) for queue in state.tasks.queues.values()),
        set_aside_why=_latest_set_aside(state),
        standstill=_line(state.standstills.sentence),
        pairs=_line(state.pairs.sentence),
        slow=_line(state.slow.sentence),
        replaced=list(state.pairs.replaced.values()),
        stepped=members.proposal is None
        and any(one.step > 0 for one in members.roster.present.values()),
    )


def _latest_set_aside(state: StoredState) -> str:
    """Returns one line about the latest task that was set aside; "" if there is none."""
    for name, queue in state.tasks.queues.items():
        if queue.set_aside:
            task, why = list(queue.set_aside.items())[-1]
            return _line(
                f"queue {name}: task {task} ({queue.source.name(task)[:200]}): {why[:_WHY]}"
            )
    return ""


def _line(text: str) -> str:
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())[:_LINE]


def training_progress(
    state: StoredState, rates: RequestRates, pauses: PauseMeter, now: float
) -> pb.TrainingProgress:
    """Returns the values that change all the time. Bounded: of a large Job a part of the members, all of whose
    stragglers come first."""
    live, present = state.membership.live, list(state.membership.present())
    found = pb.TrainingProgress(samples_per_s=rates.samples_per_s(present))
    if (left := rates.epoch_left(present)) is not None:
        found.epoch_left = left
    if live is not None:
        found.generation = live.number
        slow = rates.stragglers(present)
        ranked = list(enumerate(one.member for one in live.processes))
        chosen = sorted(ranked, key=lambda one: one[1] not in slow)[: limits.REPORTED_MEMBERS]
        found.left_out = len(ranked) - len(chosen)
        for rank, member in sorted(chosen):
            found.members.append(_member(rates, rank, member, straggles=member in slow))
    found.gpu_seconds.update(state.gpu_time.spent)
    for (size, nodes), per_s in state.speeds.told.items():
        found.speeds.add(members=size, nodes=nodes, per_s=per_s)
    found.queues.extend(_queue(name, one, now) for name, one in state.tasks.queues.items())
    if live is not None and (pause := pauses.latest) and pause.generation == live.number:
        found.pause.generation, found.pause.seconds = pause.generation, pause.seconds
        found.pause.repeated_steps, found.pause.repeated_s = pause.repeated_steps, pause.repeated_s
    return found


def _member(rates: RequestRates, rank: int, member: int, *, straggles: bool) -> pb.MemberProgress:
    rate = rates.of(member)
    found = pb.MemberProgress(
        member=member,
        rank=rank,
        step_s=rate.claimed_s or rate.step_s,
        samples_per_s=rate.samples_per_s,
        straggler=straggles,
    )
    if rate.step >= 0:
        found.step = rate.step
    return found


def _queue(name: str, queue: TaskQueue, now: float) -> pb.QueueProgress:
    counts, tasks_per_s = queue.summary(), queue.rate.per_s(now)
    return pb.QueueProgress(
        name=name,
        epoch=counts["epoch"],
        todo=counts["todo"],
        leased=counts["leased"],
        done=counts["done"],
        set_aside=len(queue.set_aside),
        tasks_per_s=tasks_per_s,
        records_per_s=tasks_per_s * queue.source.size,
    )
