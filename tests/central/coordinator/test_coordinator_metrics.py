"""What the coordinator says of itself as Prometheus text, after a known story."""

import asyncio

from central.controllers.training.membership import MembershipRules
from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_source import QueueSettings, TaskSource
from central.coordinator.coordinator_status import metrics_text
from central.coordinator.request_rates import RequestRates
from central.coordinator.saving import Saving
from central.coordinator.state_store import NoStore
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
