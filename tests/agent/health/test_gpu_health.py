from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.health.gpu_health import (
    ABSENT,
    DeviceHealth,
    HoldDown,
    XidEvent,
    all_unhealthy,
    changes,
    keep_layout,
    next_release,
    step,
)
from agent.machine import findings, xid_rules
from agent.machine.facts import GpuFacts, Machine, Wear
from agent.machine.survey import survey
from protos.topology import NodeTopology, Slice
from tests.effort import examples
from tests.fakes import machines

KNOWN = survey(machines.machine())


def without(*gone: int) -> Machine:
    """The driver lists the other GPUs with new indices."""
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


def unhealthy(topology: NodeTopology) -> dict[int, str]:
    return {gpu.index: gpu.why for gpu in topology.gpus if not gpu.healthy}


def test_a_missing_gpu_does_not_change_the_indices_of_the_others() -> None:
    now = keep_layout(KNOWN, survey(without(3)))
    assert unhealthy(now) == {3: ABSENT}
    assert [gpu.uuid for gpu in now.gpus] == [machines.uuid(i) for i in range(8)]
    assert keep_layout(now, KNOWN) == KNOWN
    first = replace(
        KNOWN.gpus[0],
        healthy=False,
        why="XID 79",
        mig=True,
        mig_change=True,
        slices=(Slice("MIG-a", "1g.10gb", 1, 0),),
    )
    left = replace(KNOWN, gpus=(first, *KNOWN.gpus[1:3]))
    assert keep_layout(KNOWN, left).gpus[0] == first


def test_a_lost_gpu_without_uuid_is_identified_by_its_index() -> None:
    made = machines.machine()
    gpus = list(made.nvml.gpus)
    gpus[5] = GpuFacts(index=5, fault="NVML can't reach it: GPU is lost")
    now = keep_layout(KNOWN, survey(replace(made, nvml=replace(made.nvml, gpus=tuple(gpus)))))
    assert unhealthy(now) == {5: "NVML can't reach it: GPU is lost"}
    assert now.gpus[5].uuid == machines.uuid(5)


def test_a_replaced_gpu_is_new_hardware() -> None:
    made = without(3)
    swapped = (*made.nvml.gpus, replace(machines.machine().nvml.gpus[3], index=7, uuid="GPU-new"))
    seen = survey(replace(made, nvml=replace(made.nvml, gpus=swapped)))
    assert keep_layout(KNOWN, seen) == seen


def test_all_gpus_are_unhealthy_without_a_driver() -> None:
    assert set(unhealthy(all_unhealthy(KNOWN, "no driver")).values()) == {"no driver"}


def test_each_change_is_logged_once() -> None:
    now = keep_layout(KNOWN, survey(without(3)))
    assert changes(KNOWN, now) == (f"GPU 3 ({machines.uuid(3)}) is unhealthy: {ABSENT}",)
    assert changes(now, now) == ()
    assert changes(now, KNOWN) == (f"GPU 3 ({machines.uuid(3)}) is healthy again",)
    assert changes(KNOWN, survey(without(3))) == (f"GPU 3 ({machines.uuid(3)}) is {ABSENT}",)


HOLD_DOWN = HoldDown(hold_s=10.0, max_hold_s=80.0, xid_s=100.0, settled_s=1000.0)


class Monitor:
    """A machine's health, survey by survey, at the times that the test gives."""

    def __init__(self, hold_down: HoldDown = HOLD_DOWN) -> None:
        self.health: dict[str, DeviceHealth] = {}
        self.topology, self.now = KNOWN, 0.0
        self.hold_down = hold_down
        self.facts = machines.machine().nvml.gpus

    def look(self, at: float, *xids: tuple[int, int], **changed: object) -> dict[int, str]:
        """changed: facts of GPU 3. The GPU of an XID is its index; -1 for an XID without a GPU."""
        self.now = at
        gpus = list(self.facts)
        gpus[3] = replace(gpus[3], **changed)  # type: ignore[arg-type]
        found = [findings.from_facts(gpu) for gpu in gpus]
        now = tuple(
            replace(gpu, healthy=not f, why=f.why if f else "")
            for gpu, f in zip(KNOWN.gpus, found, strict=True)
        )
        seen = replace(KNOWN, gpus=now)
        events = [XidEvent(machines.uuid(gpu) if gpu >= 0 else "", code) for gpu, code in xids]
        self.health, self.topology = step(
            self.health, seen, gpus, events, now=at, hold_down=self.hold_down
        )
        return unhealthy(self.topology)


@pytest.mark.parametrize("code", sorted(xid_rules.XIDS))
def test_every_xid_by_its_class(code: int) -> None:
    monitor = Monitor()
    assert monitor.look(0) == {}
    kind, found = xid_rules.classify(code)
    after = monitor.look(1, (3, code))
    if kind in (xid_rules.PROGRAM, xid_rules.LOOK, xid_rules.RESTART):
        assert after == {}
        return
    assert after[3].startswith(found.why)
    assert found.why.startswith(f"XID {code}: ")
    began = 1.0 + HOLD_DOWN.xid_s
    assert monitor.look(began).keys() == {3}
    assert next_release(monitor.health.values(), HOLD_DOWN) == began + HOLD_DOWN.hold_s
    assert monitor.look(began + HOLD_DOWN.hold_s - 0.1).keys() == {3}
    assert monitor.look(began + HOLD_DOWN.hold_s) == {}
    assert next_release(monitor.health.values(), HOLD_DOWN) is None


def test_every_code_of_the_catalogue_has_a_name() -> None:
    words = {code: xid_rules.classify(code)[1].why for code in range(1, xid_rules.NEWEST + 1)}
    assert not [code for code, text in words.items() if "not a known" in text]
    assert words[39].endswith("copy engine exception")
    assert words[77].endswith("copy engine exception")


def test_a_contained_error_holds_nothing_out_where_the_driver_reports_no_recovery_action() -> None:
    """Only the process has to end; its memory error also counts in the error counter."""
    monitor = Monitor()
    monitor.look(0, wear=Wear(ecc_volatile=0))
    assert monitor.look(1, (3, 94), wear=Wear(ecc_volatile=1)) == {}
    assert monitor.look(2, (3, 94), (3, 95), wear=Wear(ecc_volatile=2))[3].startswith("XID 95")
    other = Monitor()
    other.look(0, wear=Wear(ecc_volatile=0))
    assert other.look(1, (3, 13), wear=Wear(ecc_volatile=1)).keys() == {3}, "not its error"


def test_an_unknown_xid_is_reported_without_effect() -> None:
    monitor = Monitor()
    assert monitor.look(0, (3, 4711)) == {}
    assert xid_rules.classify(4711) == (
        xid_rules.UNKNOWN,
        findings.Finding("xid", "XID 4711: not a known XID"),
    )


def test_an_xid_without_a_gpu_counts_for_every_gpu() -> None:
    assert len(Monitor().look(0, (-1, 79))) == 8


@pytest.mark.parametrize(
    ("wear", "why"),
    [
        (Wear(recovery=1), "the driver requests a reset of this GPU"),
        (Wear(recovery=2), "the driver requests a reboot of the node"),
        (Wear(recovery=99), "the driver requests recovery action 99"),
        (Wear(rows_pending=True), "is to be remapped"),
        (Wear(rows_failed=True), "replace the GPU"),
        (Wear(pages_pending=True), "pages are to be retired"),
    ],
)
def test_readings_that_make_a_gpu_unhealthy(wear: Wear, why: str) -> None:
    monitor = Monitor()
    assert why in monitor.look(0, wear=wear)[3]
    assert "cleared; held down for 10 s" in monitor.look(1)[3]
    assert monitor.look(11) == {}


def test_a_new_memory_error_counts_for_a_hold_time_and_those_of_former_resets_never() -> None:
    monitor = Monitor()
    assert monitor.look(0, wear=Wear(ecc_volatile=0, ecc_aggregate=900, rows_remapped=7)) == {}
    assert "an uncorrectable memory error" in monitor.look(1, wear=Wear(ecc_volatile=1))[3]
    assert monitor.look(10, wear=Wear(ecc_volatile=1)).keys() == {3}
    assert monitor.look(11, wear=Wear(ecc_volatile=1)) == {}


def test_memory_errors_before_the_first_survey_count_until_a_reset_or_ten_minutes() -> None:
    errors = "5 uncorrectable memory errors since its last reset"
    monitor = Monitor()
    assert monitor.look(0, wear=Wear(ecc_volatile=5)) == {3: errors}
    assert monitor.look(99, wear=Wear(ecc_volatile=5)) == {3: errors}
    assert monitor.look(100, wear=Wear(ecc_volatile=5))[3].startswith(f"{errors} (cleared")
    assert monitor.look(110, wear=Wear(ecc_volatile=5)) == {}
    again = Monitor()
    again.look(0, wear=Wear(ecc_volatile=5))
    assert again.look(1, wear=Wear(ecc_volatile=0))[3].startswith(f"{errors} (cleared")
    assert again.look(11, wear=Wear(ecc_volatile=0)) == {}
    assert again.look(12, wear=Wear(ecc_volatile=4)).keys() == {3}


def test_memory_errors_before_the_first_survey_are_the_drivers_matter_if_it_says_what_to_do() -> None:  # fmt: skip
    assert Monitor().look(0, wear=Wear(ecc_volatile=5, recovery=0)) == {}
    assert "reset" in Monitor().look(0, wear=Wear(ecc_volatile=5, recovery=1))[3]


def test_a_reported_recovery_action_overrides_the_xid() -> None:
    monitor = Monitor()
    monitor.look(0, (3, 79), wear=Wear(recovery=0))
    monitor.look(1, wear=Wear(recovery=0))
    assert monitor.look(11, wear=Wear(recovery=0)) == {}


def test_a_harmless_xid_every_ten_minutes_costs_its_hold_each_time() -> None:
    """The driver asks for nothing. 145 does not count at all, another keeps its first hold."""
    for code, out in ((145, 0), (140, 10)):
        monitor, unfit = Monitor(), 0
        for second in range(3600):
            xids = ((3, code),) if second % 600 == 5 else ()
            unfit += bool(monitor.look(float(second), *xids, wear=Wear(recovery=0)))
        assert unfit == 6 * out


@pytest.mark.parametrize("code", [46, 110, 136, 151, 155, 156, 158, 167, 169])
def test_more_xids_that_need_a_reset(code: int) -> None:
    assert xid_rules.classify(code)[0] == xid_rules.RESET


def test_several_errors_keep_the_first_reason_and_their_own_time() -> None:
    monitor = Monitor()
    assert monitor.look(0, (3, 79))[3].startswith("XID 79")
    assert monitor.look(50, (3, 48))[3].startswith("XID 79")
    assert monitor.look(99)[3].startswith("XID 79")
    assert monitor.look(100)[3].startswith("XID 48")  # 79 has ended
    monitor.look(120, (3, 48))  # once more: it counts from now on
    assert "cleared" not in monitor.look(219)[3]
    assert "cleared" in monitor.look(220)[3]


def test_an_xid_tells_more_than_the_error_counter() -> None:
    monitor = Monitor()
    monitor.look(0, wear=Wear(ecc_volatile=5, recovery=0))
    assert monitor.look(1, (3, 94), wear=Wear(ecc_volatile=6, recovery=0))[3].startswith("XID 94")


def test_a_new_gpu_that_is_healthy_is_no_change() -> None:
    fewer = replace(KNOWN, gpus=KNOWN.gpus[:7])
    assert changes(fewer, KNOWN) == ()
    broken = replace(KNOWN, gpus=(*KNOWN.gpus[:7], replace(KNOWN.gpus[7], healthy=False, why="x")))
    assert changes(fewer, broken) == (f"GPU 7 ({machines.uuid(7)}) is unhealthy: x",)
    other = replace(KNOWN, gpus=(*KNOWN.gpus[:7], replace(KNOWN.gpus[7], healthy=False, why="y")))
    assert changes(broken, other) == (f"GPU 7 ({machines.uuid(7)}) is unhealthy: y",)


def test_a_reset_clears_the_errors() -> None:
    monitor = Monitor()
    monitor.look(0, (3, 48), wear=Wear(ecc_volatile=2))
    monitor.look(5, fault="GPU is lost")
    monitor.look(6)
    assert monitor.look(16) == {}
    monitor.look(20, (3, 48), wear=Wear(ecc_volatile=2))
    monitor.look(21, wear=Wear(ecc_volatile=0))
    assert monitor.look(41, wear=Wear(ecc_volatile=0)) == {}


def test_only_a_link_that_was_active_counts_as_down() -> None:
    monitor = Monitor()
    links = monitor.facts[3].nvlinks
    down = (replace(links[0], active=False), *links[1:])
    assert monitor.look(0, nvlinks=down) == {}
    assert monitor.look(1) == {}
    assert monitor.look(2, nvlinks=down) == {3: "NVLink 0 is down (17 of 18 are active)"}
    monitor.look(3)
    assert monitor.look(13) == {}


def test_the_hold_doubles_up_to_its_limit_and_is_forgotten() -> None:
    monitor = Monitor()
    now, holds = 0.0, []
    for _ in range(6):
        monitor.look(now, fault="lost")
        now += 1
        began = now
        while monitor.look(now):
            now += 1
        holds.append(now - began)
    assert holds == [10, 20, 40, 80, 80, 80]
    now += HOLD_DOWN.settled_s
    monitor.look(now, fault="lost")
    monitor.look(now + 1)
    assert monitor.look(now + 11) == {}


def test_an_absent_driver_is_no_reset() -> None:
    monitor = Monitor()
    monitor.look(0, (3, 95))
    health, topology = step(
        monitor.health,
        all_unhealthy(monitor.topology, "hangs"),
        monitor.facts,
        (),
        now=1.0,
        hold_down=HOLD_DOWN,
    )
    assert set(unhealthy(topology).values()) == {"hangs"}
    assert health[machines.uuid(3)].expiring


def test_gpus_that_are_not_listed_are_forgotten() -> None:
    monitor = Monitor()
    monitor.look(0)
    other = replace(KNOWN, gpus=tuple(replace(gpu, uuid=f"new-{gpu.index}") for gpu in KNOWN.gpus))
    health, _ = step(monitor.health, other, (), (), now=1.0, hold_down=HOLD_DOWN)
    assert len(health) == 8


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
ACTING = {48, 74, 79}


@settings(max_examples=examples(150), deadline=None)
@given(LOOKS)
def test_any_history_of_one_gpu(looks: list[tuple[float, dict[str, object], list[int]]]) -> None:
    """Unhealthy at the survey that sees an error; healthy again only after the hold-down; the other
    GPUs are not affected."""
    monitor = Monitor()
    now, bad_at, was = 0.0, -1e9, False
    for pause, changed, xids in looks:
        now += pause
        now_unhealthy = monitor.look(now, *((3, code) for code in xids), **changed)
        assert now_unhealthy.keys() <= {3}
        bad = findings.from_facts(replace(monitor.facts[3], **changed)) or ACTING & set(xids)  # type: ignore[arg-type]
        if bad:
            assert now_unhealthy
        if was and not now_unhealthy:
            assert now - bad_at >= HOLD_DOWN.hold_s, "healthy before the end of its hold-down"
        if bad or (now_unhealthy and "cleared; held" not in now_unhealthy[3]):
            bad_at = now
        was = bool(now_unhealthy)
    for _ in range(8):
        now += HOLD_DOWN.max_hold_s * 2
        last = monitor.look(now)
    assert last == {}
