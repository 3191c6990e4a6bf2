"""The enforcement of each GPU from the configuration, the node's capabilities and the running
pods."""

from dataclasses import replace

from agent.machine.survey import survey
from agent.sharing.enforcement import Capabilities, with_sharing
from agent.sharing.sharing_mode import parse
from protos.topology import NodeTopology
from tests.fakes import machines

TOPOLOGY = survey(machines.machine(4))
ALL = Capabilities("", "", "")
UUIDS = [gpu.uuid for gpu in TOPOLOGY.gpus]


def seen(topology: NodeTopology) -> list[tuple[int, str, str]]:
    return [(gpu.shares, gpu.enforcement, gpu.share_why) for gpu in topology.gpus]


def test_every_gpu_in_its_own_way() -> None:
    ways = parse("0: mps; 1: watch; 2: none")
    assert seen(with_sharing(TOPOLOGY, ways, ALL, {}, {})) == [
        (100, "mps", ""),
        (100, "watch", ""),
        (100, "none", ""),
        (0, "none", ""),
    ]


def test_auto_is_the_best_that_nobody_notices() -> None:
    def best(able: Capabilities) -> str:
        return with_sharing(TOPOLOGY, parse("all"), able, {}, {}).gpus[0].enforcement

    assert best(ALL) == "kernel"
    assert best(replace(ALL, kernel="old driver")) == "watch"
    assert best(Capabilities("old driver", "", "no hostPID")) == "none"


def test_what_is_demanded_and_cant_be_had_is_not_offered() -> None:
    able = Capabilities("old driver", "no gpu-setup", "no hostPID")
    ways = parse("0: kernel; 1: mps; 2: watch; 3: none")
    assert seen(with_sharing(TOPOLOGY, ways, able, {}, {})) == [
        (0, "none", "not shared by kernel: old driver"),
        (0, "none", "not shared by mps: no gpu-setup"),
        (0, "none", "not shared by watch: no hostPID"),
        (100, "none", ""),
    ]


def test_who_is_there_is_not_disturbed() -> None:
    """A GPU switches to or from MPS when no pod holds it; other changes apply to new containers."""
    ways = parse("0: mps; 1: watch; 2: none; 3: whole")
    running = dict(zip(UUIDS, ["watch", "mps", "kernel", "mps"], strict=True))
    assert seen(with_sharing(TOPOLOGY, ways, ALL, running, {})) == [
        (0, "watch", "shared by watch; will be shared by mps when its pods have ended"),
        (0, "mps", "shared by mps; will be shared by watch when its pods have ended"),
        (100, "none", ""),
        (0, "mps", "shared by mps; will be whole when its pods have ended"),
    ]


def test_mps_that_does_not_serve_gives_no_more_shares() -> None:
    why = {UUIDS[0]: "the server ended"}
    made = with_sharing(TOPOLOGY, parse("0,1: mps"), ALL, {UUIDS[0]: "mps"}, why)
    assert seen(made)[:2] == [(0, "mps", "the server ended"), (100, "mps", "")]


def test_a_gpu_in_mig_mode_is_given_in_slices_only() -> None:
    mig = replace(TOPOLOGY, gpus=tuple(replace(gpu, mig=True) for gpu in TOPOLOGY.gpus))
    assert with_sharing(mig, parse("all: watch"), ALL, {}, {}) == mig


def test_a_gpu_that_was_put_into_mig_mode_loses_its_shares() -> None:
    """While another GPU is lost, the known layout is kept with the shares that it had."""
    known = with_sharing(TOPOLOGY, parse("all: watch"), ALL, {}, {})
    gpus = tuple(replace(gpu, mig=gpu.index == 1) for gpu in known.gpus)
    made = with_sharing(replace(known, gpus=gpus), parse("all: watch"), ALL, {}, {})
    assert seen(made)[:2] == [(100, "watch", ""), (0, "none", "")]
