"""The coordinator's own report: its status as JSON, and metrics as Prometheus text."""

from collections.abc import Iterator

from central.controllers.training.lease_time import BOUNDS_S, LeaseTime
from central.controllers.training.stored_state import StoredState
from central.coordinator.request_rates import RequestRates
from central.coordinator.saving import Saving
from central.model.json_types import Json


def status(state: StoredState, saving: Saving, rates: RequestRates, now: float) -> Json:
    members = state.membership
    answer = members.answer(now)
    present = list(members.present())
    slow = rates.stragglers(present)
    for one in answer["members"]:
        rate = rates.of(one["member"])
        one |= {
            "step": rate.step,
            "step_s": round(rate.step_s, 6),
            "straggler": one["member"] in slow,
        }
        one |= {"samples_per_s": round(rate.samples_per_s, 3)}
    return {
        **answer,
        "present": sorted(present),
        "waits_for": [member for member in sorted(present) if members.unacknowledged(member)],
        "failed": members.roster.failed,
        "failures": [
            {"member": one.member, "code": one.code, "message": one.message}
            for one in members.roster.failures
        ],
        "standstill": state.standstills.json(),
        "pairs": {"why": state.pairs.sentence, "members": list(state.pairs.blamed)},
        "slow": {"why": state.slow.sentence, "members": list(state.slow.members)},
        "replaced": list(state.pairs.replaced.values()),
        "samples_per_s": round(rates.samples_per_s(present), 3),
        "gpu_seconds": {name: round(each, 1) for name, each in state.gpu_time.spent.items()},
        "queues": {name: queue.summary() for name, queue in state.tasks.queues.items()},
        "checkpoint": state.checkpoints.latest(),
        "durable": saving.durable,
        "not_durable_for_s": _since(saving.not_durable_since, now),
        "trouble": saving.trouble,
    }


def _since(then: float | None, now: float) -> float | None:
    return None if then is None else round(now - then, 1)


def metrics_text(state: StoredState, saving: Saving, rates: RequestRates, now: float) -> str:
    members = state.membership
    newest = state.checkpoints.newest()
    rows: list[tuple[str, str, float]] = [
        ("lockstep_coordinator_generation", "", members.live.number if members.live else 0),
        ("lockstep_coordinator_members", "", len(members.live.processes) if members.live else 0),
        ("lockstep_coordinator_present", "", len(members.present())),
        ("lockstep_coordinator_failures_total", "", members.roster.failed),
        ("lockstep_coordinator_standstill_ranks", "", state.standstills.ranks()),
        ("lockstep_coordinator_writes_total", "", saving.writes),
        (
            "lockstep_coordinator_not_durable_seconds",
            "",
            _since(saving.not_durable_since, now) or 0,
        ),
        ("lockstep_training_samples_per_second", "", rates.samples_per_s(list(members.present()))),
        ("lockstep_checkpoint_seconds", "", state.checkpoints.last_took_s),
    ]
    for activity, seconds in state.gpu_time.spent.items():
        rows.append(("lockstep_training_gpu_seconds_total", f'{{activity="{activity}"}}', seconds))
    if newest is not None:  # its time is known
        rows.append(("lockstep_checkpoint_age_seconds", "", now - newest[1]))
    for name, queue in state.tasks.queues.items():
        summary = queue.summary()
        counts = {kind: summary[kind] for kind in ("todo", "leased", "done")}
        for kind, count in {**counts, "failed": len(queue.set_aside)}.items():
            labels = f'{{queue="{_escaped(name)}",state="{kind}"}}'
            rows.append(("lockstep_tasks", labels, count))
        rows += _durations(name, queue.times)
    return "".join(f"{name}{labels} {value:g}\n" for name, labels, value in rows)


def _durations(name: str, times: LeaseTime) -> Iterator[tuple[str, str, float]]:
    """A histogram of what tasks took from their lease to `done`, since this coordinator started."""
    queue = f'queue="{_escaped(name)}"'
    total = 0
    for bound, count in zip((*map("{:g}".format, BOUNDS_S), "+Inf"), times.counts, strict=True):
        total += count
        yield "lockstep_task_seconds_bucket", f'{{{queue},le="{bound}"}}', total
    yield "lockstep_task_seconds_sum", f"{{{queue}}}", times.sum_s
    yield "lockstep_task_seconds_count", f"{{{queue}}}", total


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
