"""Parts of GPUs in Queues: fractional amounts, and what a MIG slice counts."""

import json
from fractions import Fraction

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode import policy_decoder
from central.kube.decode.fields import MalformedObject
from central.model.decisions import Bind, Evict
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.queues.gpu_currency import GpuCurrency
from central.server import checkpoint, journal
from protos.names import GPU, MIG
from tests.central import factories
from tests.central.factories import SLICE
from tests.central.kube import api_fixtures
from tests.central.scheduler.invariants import check_invariants


def bound(*facts: Fact, mig_fractions: dict[str, Fraction] | None = None) -> list[str]:
    scheduler = new_scheduler(factories.LEVELS, mig_fractions=mig_fractions or {})
    decisions = schedule_once(scheduler, facts, 0.0)
    check_invariants(scheduler)
    return [each.name for each in decisions if isinstance(each, Bind)]


def queue(name: str, **spec: object) -> Fact:
    return policy_decoder.decode_queue(api_fixtures.queue(name, **spec))


def shared_node(gpus: int) -> list[Fact]:
    hardware = factories.topology(gpus, ((0,),), shares=True)
    return [factories.node("n", gpus=gpus, shares=True), factories.report("n", hardware)]


def test_half_a_gpu_is_fifty_hundredths() -> None:
    shares = [factories.part(f"s{i}", 25, queue="a") for i in range(3)]
    half = queue("a", capability={GPU: "0.5"})
    assert bound(*shared_node(1), half, *shares) == ["s0", "s1"]
    assert bound(*shared_node(1), half, factories.pod("whole", 1, queue="a")) == []


def test_two_queues_deserve_half_of_one_gpu() -> None:
    queues = [queue(name, deserved={GPU: "500m"}) for name in ("a", "b")]
    scheduler = new_scheduler(factories.LEVELS)
    first = [
        factories.part(f"a{i}", 50, queue="a", node="n", phase="Running", started=float(i))
        for i in range(2)
    ]
    schedule_once(scheduler, [*shared_node(1), *queues, *first], 10.0)
    late = factories.part("b0", 50, queue="b", created=20.0)
    evicted = [
        each.name for each in schedule_once(scheduler, [late], 20.0) if isinstance(each, Evict)
    ]
    check_invariants(scheduler)
    assert evicted == ["a1"]


@pytest.mark.parametrize("field", ["deserved", "capability"])
def test_an_amount_is_read_exactly(field: str) -> None:
    found = queue("a", **{field: {GPU: "1.25", "cpu": "1"}})
    assert dict(getattr(found, field)) == {"gpu-equivalents": 10500, "cpu": 1000}
    assert dict(getattr(queue("a", **{field: {GPU: "2.0"}}), field)) == {GPU: 2}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"deserved": {SLICE: "0.5"}}, f'spec.deserved.{SLICE}: "0.5" is not a whole number'),
        ({"deserved": {GPU: "-0.5"}}, f'spec.deserved.{GPU}: "-0.5" is below zero'),
        (
            {"deserved": {GPU: "1.5"}, "capability": {GPU: 1}},
            f"spec.deserved.{GPU}: exceeds spec.capability",
        ),
        (
            {"deserved": {GPU: 1}, "capability": {GPU: "0.5"}},
            f"spec.deserved.{GPU}: exceeds spec.capability",
        ),
    ],
)
def test_amounts_that_a_queue_cannot_have(spec: dict[str, object], error: str) -> None:
    try:
        found = policy_decoder.decode_queue(api_fixtures.queue("a", **spec)).error
    except MalformedObject as malformed:
        found = str(malformed)
    assert error in found


def test_a_slice_counts_what_the_flag_says() -> None:
    node = factories.node("n", gpus=0, slices=7)
    slices = [factories.slicer(factories.pod(f"s{i}", queue="a"), 1) for i in range(7)]
    one = queue("a", capability={GPU: 1})
    assert len(bound(node, one, *slices)) == 7
    assert len(bound(node, one, *slices, mig_fractions={SLICE: Fraction(1, 4)})) == 4


def test_the_fraction_of_other_slices_stays() -> None:
    currency = GpuCurrency({SLICE: Fraction(1, 4)})
    assert currency.units(SLICE) == 2100
    assert currency.units(f"{MIG}3g.40gb") == 3600


def test_journals_checkpoints_and_rebuilds_keep_the_fractions() -> None:
    made = new_scheduler(mig_fractions={SLICE: Fraction(1, 4)})
    replayed = new_scheduler(**json.loads(json.dumps(journal.settings(made))))
    for again in (replayed, checkpoint.take(made).folded, made.emptied()):
        assert again.queues.currency.units(SLICE) == 2100
