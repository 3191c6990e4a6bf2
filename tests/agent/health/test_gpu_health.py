from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.health.gpu_health import ABSENT, Damping, Event, Health, blind, changes, due, judge, step
from agent.machine import findings, xid_rules
from agent.machine.facts import GpuFacts, Machine, Wear
from agent.machine.survey import survey
from protos.topology import NodeTopology
from tests.fakes import machines

KNOWN = survey(machines.machine())


def without(*gone: int) -> Machine:
    """The driver lists the rest, numbered anew."""
    made = machines.machine()
    rest = [gpu for gpu in made.nvml.gpus if gpu.index not in gone]
    gpus = tuple(
        replace(
            gpu,
            index=place,
            p2p_nvlink=gpu.p2p_nvlink[: len(rest)],
            ancestors=gpu.ancestors[: len(rest)],
        )
        for place, gpu in enumerate(rest)
    )
    return replace(made, nvml=replace(made.nvml, gpus=gpus))


def unfit(topology: NodeTopology) -> dict[int, str]:
    return {gpu.index: gpu.why for gpu in topology.gpus if not gpu.healthy}


def test_a_gpu_that_is_gone_leaves_the_others_their_numbers() -> None:
    now = judge(KNOWN, survey(without(3)))
    assert unfit(now) == {3: ABSENT}
    assert [gpu.uuid for gpu in now.gpus] == [machines.uuid(i) for i in range(8)]
    assert judge(now, KNOWN) == KNOWN


def test_a_gpu_that_is_lost_tells_nothing_and_stands_where_it_stood() -> None:
    made = machines.machine()
    gpus = list(made.nvml.gpus)
    gpus[5] = GpuFacts(index=5, fault="NVML can't reach it: GPU is lost")
    now = judge(KNOWN, survey(replace(made, nvml=replace(made.nvml, gpus=tuple(gpus)))))
    assert unfit(now) == {5: "NVML can't reach it: GPU is lost"}
    assert now.gpus[5].uuid == machines.uuid(5)


def test_another_gpu_in_the_machine_is_another_machine() -> None:
    made = without(3)
    swapped = (*made.nvml.gpus, replace(machines.machine().nvml.gpus[3], index=7, uuid="GPU-new"))
    seen = survey(replace(made, nvml=replace(made.nvml, gpus=swapped)))
    assert judge(KNOWN, seen) == seen


def test_blind() -> None:
    assert set(unfit(blind(KNOWN, "no driver")).values()) == {"no driver"}


def test_changes_are_told_once() -> None:
    now = judge(KNOWN, survey(without(3)))
    assert changes(KNOWN, now) == (f"GPU 3 ({machines.uuid(3)}) is not fit: {ABSENT}",)
    assert changes(now, now) == ()
    assert changes(now, KNOWN) == (f"GPU 3 ({machines.uuid(3)}) is fit again",)
    assert changes(KNOWN, survey(without(3))) == (f"GPU 3 ({machines.uuid(3)}) is gone",)


# --- over time

DAMPING = Damping(hold_s=10.0, most_s=80.0, xid_s=100.0, settled_s=1000.0)


class Told:
    """A machine's health as it is told look by look; time is what the test says."""

    def __init__(self, damping: Damping = DAMPING) -> None:
        self.health, self.topology, self.now = Health(), KNOWN, 0.0
        self.damping = damping
        self.facts = machines.machine().nvml.gpus

    def look(self, at: float, *xids: tuple[int, int], **changed: object) -> dict[int, str]:
        """changed: facts of GPU 3. An XID of no GPU has the number -1."""
        self.now = at
        gpus = list(self.facts)
        gpus[3] = replace(gpus[3], **changed)  # type: ignore[arg-type]
        found = [findings.of(gpu) for gpu in gpus]
        now = tuple(
            replace(gpu, healthy=not f, why=f.why if f else "")
            for gpu, f in zip(KNOWN.gpus, found, strict=True)
        )
        seen = replace(KNOWN, gpus=now)
        events = [Event(machines.uuid(gpu) if gpu >= 0 else "", code) for gpu, code in xids]
        self.health, self.topology = step(
            self.health, seen, gpus, events, now=at, damping=self.damping
        )
        return unfit(self.topology)


@pytest.mark.parametrize("code", sorted(xid_rules.XIDS))
def test_every_xid_by_its_class(code: int) -> None:
    told = Told()
    assert told.look(0) == {}
    kind, found = xid_rules.xid(code)
    after = told.look(1, (3, code))
    if kind in (xid_rules.PROGRAM, xid_rules.LOOK):
        assert after == {}
        return
    assert after[3].startswith(found.why)
    assert found.why.startswith(f"XID {code}: ")
    began = 1.0  # what is over at once is held from then on
    if kind == xid_rules.RESET:
        began += DAMPING.xid_s
        assert told.look(began).keys() == {3}
    assert due(told.health.cases.values(), DAMPING) == began + DAMPING.hold_s
    assert told.look(began + DAMPING.hold_s - 0.1).keys() == {3}
    assert told.look(began + DAMPING.hold_s) == {}
    assert due(told.health.cases.values(), DAMPING) is None


def test_an_xid_that_nobody_knows_is_said_and_nothing_is_done() -> None:
    told = Told()
    assert told.look(0, (3, 4711)) == {}
    assert xid_rules.xid(4711) == (
        xid_rules.UNKNOWN,
        findings.Finding("xid", "XID 4711: not in our table"),
    )


def test_an_xid_of_no_gpu_that_we_know_counts_for_each() -> None:
    assert len(Told().look(0, (-1, 79))) == 8


@pytest.mark.parametrize(
    ("wear", "why"),
    [
        (Wear(recovery=1), "the driver asks to reset this GPU"),
        (Wear(recovery=2), "the driver asks to reboot the node"),
        (Wear(recovery=99), "the driver asks for recovery action 99"),
        (Wear(rows_pending=True), "waits to be remapped"),
        (Wear(rows_failed=True), "replace the GPU"),
        (Wear(pages_pending=True), "pages wait to be retired"),
    ],
)
def test_readings_that_make_a_gpu_unfit(wear: Wear, why: str) -> None:
    told = Told()
    assert why in told.look(0, wear=wear)[3]
    assert "over; held back for 10 s" in told.look(1)[3]
    assert told.look(11) == {}


def test_old_errors_are_history_and_new_ones_are_news() -> None:
    told = Told()
    assert told.look(0, wear=Wear(ecc_volatile=5, ecc_aggregate=900, rows_remapped=7)) == {}
    assert "an uncorrectable memory error" in told.look(1, wear=Wear(ecc_volatile=6))[3]
    assert told.look(10, wear=Wear(ecc_volatile=6)).keys() == {3}
    assert told.look(11, wear=Wear(ecc_volatile=6)) == {}


def test_where_the_driver_tells_what_it_asks_for_its_word_counts() -> None:
    told = Told()
    told.look(0, (3, 79), wear=Wear(recovery=0))
    told.look(1, wear=Wear(recovery=0))
    assert told.look(11, wear=Wear(recovery=0)) == {}


def test_a_gpu_that_was_reset_has_its_errors_behind_it() -> None:
    told = Told()
    told.look(0, (3, 48), wear=Wear(ecc_volatile=2))
    told.look(5, fault="GPU is lost")
    told.look(6)
    assert told.look(16) == {}
    told.look(20, (3, 48), wear=Wear(ecc_volatile=2))
    told.look(21, wear=Wear(ecc_volatile=0))
    assert told.look(41, wear=Wear(ecc_volatile=0)) == {}


def test_a_link_that_went_down_and_one_that_never_was_up() -> None:
    told = Told()
    links = told.facts[3].nvlinks
    down = (replace(links[0], active=False), *links[1:])
    assert told.look(0, nvlinks=down) == {}
    assert told.look(1) == {}
    assert told.look(2, nvlinks=down) == {3: "NVLink 0 went down (17 of 18 are up)"}
    told.look(3)
    assert told.look(13) == {}


def test_the_hold_doubles_up_to_its_limit_and_is_forgotten() -> None:
    told = Told()
    now, holds = 0.0, []
    for _ in range(6):
        told.look(now, fault="lost")
        now += 1
        began = now
        while told.look(now):
            now += 1
        holds.append(now - began)
    assert holds == [10, 20, 40, 80, 80, 80]
    now += DAMPING.settled_s
    told.look(now, fault="lost")
    told.look(now + 1)
    assert told.look(now + 11) == {}


def test_a_driver_that_is_away_is_no_reset() -> None:
    told = Told()
    told.look(0, (3, 95))
    health, topology = step(
        told.health, blind(told.topology, "hangs"), told.facts, (), now=1.0, damping=DAMPING
    )
    assert set(unfit(topology).values()) == {"hangs"}
    assert health.cases[machines.uuid(3)].marks


def test_cases_are_kept_of_gpus_that_are_there() -> None:
    told = Told()
    told.look(0)
    other = replace(KNOWN, gpus=tuple(replace(gpu, uuid=f"new-{gpu.index}") for gpu in KNOWN.gpus))
    health, _ = step(told.health, other, (), (), now=1.0, damping=DAMPING)
    assert len(health.cases) == 8


LOOKS = st.lists(
    st.tuples(
        st.floats(0.5, 120.0),
        st.sampled_from(
            [
                {},
                {},
                {"fault": "lost"},
                {"wear": Wear(recovery=1)},
                {"wear": Wear(recovery=0)},
                {"wear": Wear(rows_pending=True)},
                {"wear": Wear(ecc_volatile=1)},
                {"wear": Wear(ecc_volatile=4)},
                {"mig": True},
                {"nvlinks": ()},
            ]
        ),
        st.lists(st.sampled_from([13, 48, 63, 74, 79, 94, 154, 999]), max_size=2),
    ),
    max_size=20,
)
ACTING = {48, 74, 79, 94}


@settings(max_examples=150, deadline=None)
@given(LOOKS)
def test_any_story_of_one_gpu(looks: list[tuple[float, dict[str, object], list[int]]]) -> None:
    """Unfit at the very look that sees something bad; never back before its hold; back when
    everything stays well; the others are never touched."""
    told = Told()
    now, bad_at, was = 0.0, -1e9, False
    for pause, changed, xids in looks:
        now += pause
        now_unfit = told.look(now, *((3, code) for code in xids), **changed)
        assert now_unfit.keys() <= {3}
        bad = findings.of(replace(told.facts[3], **changed)) or ACTING & set(xids)  # type: ignore[arg-type]
        if bad:
            assert now_unfit
        if was and not now_unfit:
            assert now - bad_at >= DAMPING.hold_s, "back before its hold"
        if bad or (now_unfit and "over; held" not in now_unfit[3]):
            bad_at = now
        was = bool(now_unfit)
    for _ in range(8):
        now += DAMPING.most_s * 2
        last = told.look(now)
    assert last == {}
