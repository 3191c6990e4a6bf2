from dataclasses import replace

from agent.health import ABSENT, blind, changes, judge
from agent.machine import GpuFacts, Machine
from agent.survey import survey
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
