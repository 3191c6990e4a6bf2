"""What the coordinator says of itself as Prometheus text, after a known story."""

import asyncio

from central.controllers.training.generation import MembershipRules
from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_queue import LeaseKey
from central.controllers.training.task_source import QueueSettings, TaskSource
from central.coordinator.coordinator_status import metrics_text
from central.coordinator.request_rates import RequestRates
from central.coordinator.saving import Saving
from central.coordinator.state_store import NoStore
from central.coordinator.training_messages import training_report
from tests.central.controllers.training.test_membership import ack_all, process


def metrics(
    state: StoredState, saving: Saving, rates: RequestRates, now: float
) -> dict[str, float]:
    rows = (line.rsplit(" ", 1) for line in metrics_text(state, saving, rates, now).splitlines())
    return {name: float(value) for name, value in rows}


async def _saving(state: StoredState) -> Saving:
    return Saving(state, NoStore())


def test_members_speed_tasks_and_the_age_of_the_checkpoint() -> None:
    state, rates = StoredState("a/b/c", MembershipRules(least=2, most=2)), RequestRates()
    saving = asyncio.run(_saving(state))
    members = state.membership
    for number in range(2):
        members.join(0.0, process(number))
    ack_all(members, 0.0)
    state.tasks.create('q"', QueueSettings(), TaskSource.of_range(3, 1))
    found = metrics(state, saving, rates, 5.0)
    assert "lockstep_checkpoint_age_seconds" not in found, "there is none, so nothing is too old"
    assert found["lockstep_training_samples_per_second"] == 0

    for number in range(2):
        for step in (1, 2):
            rates.report(number, 10.0 * step, step, samples=320.0, seconds=10.0)
    state.tasks.queues['q"'].lease(20.0, (0, 1), 0, 2)
    checkpoint = state.checkpoints.begin(20.0, 1, 2, {})
    state.checkpoints.part(checkpoint.name, 0, 1, "", 0)
    state.checkpoints.finish(23.0, checkpoint.name, None)
    members.leave(24.0, 1, 1, 137, "killed")
    found = metrics(state, saving, rates, 83.0)
    assert found["lockstep_training_samples_per_second"] == 32, "of those who are there"
    assert found["lockstep_checkpoint_seconds"] == 3
    assert found["lockstep_checkpoint_age_seconds"] == 60
    assert found["lockstep_coordinator_generation"] == 1
    assert found["lockstep_coordinator_present"] == 1
    assert found["lockstep_coordinator_failures_total"] == 1
    tasks = {
        state: found[f'lockstep_tasks{{queue="q\\"",state="{state}"}}']
        for state in ("todo", "leased")
    }
    assert tasks == {"todo": 1, "leased": 2}
    saving.close()


def test_a_histogram_of_what_tasks_take() -> None:
    state = StoredState("a/b/c", MembershipRules(least=1, most=1))
    saving = asyncio.run(_saving(state))
    queue = state.tasks.create("q", QueueSettings(), TaskSource.of_range(3, 1))
    for number, took_s in enumerate((1.0, 1.5, 5000.0)):
        (task,) = queue.lease(number * 1e4, (0, 1), 0, 1)["tasks"]
        key = LeaseKey((0, 1), 0, task["task"], task["attempt"])
        queue.progress(number * 1e4, key, 0)
        queue.finish(number * 1e4 + took_s, key, "")
    found = metrics(state, saving, RequestRates(), 6.0)
    bounds = ("1", "5", "1200", "+Inf")
    rows = [found[f'lockstep_task_seconds_bucket{{queue="q",le="{each}"}}'] for each in bounds]
    assert rows == [1, 2, 2, 3]
    assert found['lockstep_task_seconds_sum{queue="q"}'] == 5002.5
    assert found['lockstep_task_seconds_count{queue="q"}'] == 3
    saving.close()


def test_the_scheduler_hears_of_set_aside_tasks_and_of_restores() -> None:
    state = StoredState("a/b/c", MembershipRules(least=1, most=1))
    assert training_report(state, 0).set_aside_why == ""
    queue = state.tasks.create("q", QueueSettings(failures=0), TaskSource.of_range(3, 1))
    for _ in range(2):
        (task,) = queue.lease(0.0, (0, 1), 0, 1)["tasks"]
        why = "a torn\nfile\x00" + "x" * 5000
        queue.fail(LeaseKey((0, 1), 0, task["task"], task["attempt"]), why)
    one = state.checkpoints.begin(1.0, 4, 9, {})
    state.checkpoints.part(one.name, 0, 1, "", 0)
    state.checkpoints.finish(2.0, one.name, None)
    state.checkpoints.load(one.name, 5)
    found = training_report(state, 0)
    assert found.set_aside == 2
    name = f"{task['task']} ({task['task']}-{task['task']})"
    assert found.set_aside_why.startswith(f"queue q: task {name}: a torn file")
    assert len(found.set_aside_why) < 1000
    assert found.set_aside_why.isprintable()
    assert (found.restored, found.restored_in) == (one.name, 5)
