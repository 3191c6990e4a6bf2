"""Links and NICs of idle GPUs, and whom failed copies speak against."""

from dataclasses import replace
from itertools import combinations, permutations

from hypothesis import given
from hypothesis import strategies as st

from agent.machine import capture
from agent.machine.facts import Machine
from agent.machine.survey import survey
from agent.preflight.idle_checks import failures
from protos.blame import blamed
from tests.agent.nvml_fixture import CAPTURES

H100 = capture.load(CAPTURES / "hgx-h100-8.json")
DGX1 = capture.load(CAPTURES / "dgx1-v100-8.json")


def uuids(machine: Machine) -> list[str]:
    return [gpu.uuid for gpu in machine.nvml.gpus]


def found(machine: Machine, **nics: str) -> dict[str, str]:
    """nics: why a NIC is down."""
    topology = survey(machine)
    hcas = tuple(replace(hca, why=nics.get(hca.name, hca.why)) for hca in topology.hcas)
    return failures(replace(topology, hcas=hcas), machine.nvml.gpus, uuids(machine))


def links_down(machine: Machine, gpu: int, count: int) -> Machine:
    parts = list(machine.nvml.gpus)
    down = tuple(replace(link, active=link.link >= count) for link in parts[gpu].nvlinks)
    parts[gpu] = replace(parts[gpu], nvlinks=down)
    return replace(machine, nvml=replace(machine.nvml, gpus=tuple(parts)))


def test_a_healthy_machine_passes() -> None:
    for path in sorted(CAPTURES.glob("*.json")):
        if "off-fabric" not in path.stem:
            assert found(capture.load(path)) == {}, path.stem


def test_links_to_switches_that_are_down() -> None:
    machine = links_down(H100, 2, 3)
    assert found(machine) == {uuids(H100)[2]: "15 of 18 NVLinks to the switches are up"}
    everything = links_down(H100, 5, 18)
    assert found(everything) == {uuids(H100)[5]: "0 of 18 NVLinks to the switches are up"}


def test_direct_links_are_not_compared() -> None:
    assert found(links_down(DGX1, 2, 3)) == {}


def test_the_nic_beside_a_gpu() -> None:
    topology = survey(H100)
    count = len(topology.gpus)
    near = [
        hca.name for position, hca in enumerate(topology.hcas)
        if topology.links[1][count + position] in ("PIX", "PXB")
    ]  # fmt: skip
    assert near
    down = found(H100, **dict.fromkeys(near, "port 1 is DOWN"))
    mine = [gpu.uuid for gpu in topology.gpus if gpu.uuid in down]
    assert uuids(H100)[1] in mine
    assert down[uuids(H100)[1]] == "; ".join(
        f"NIC {name} beside it: port 1 is DOWN" for name in sorted(near)
    )
    assert uuids(H100)[7] not in mine


def test_only_gpus_that_are_asked_for() -> None:
    machine = links_down(H100, 2, 3)
    assert failures(survey(machine), machine.nvml.gpus, uuids(H100)[:2]) == {}


def test_the_gpu_of_most_failures_is_to_blame() -> None:
    assert blamed({}) == {}
    assert blamed({("a", "a"): "x"}) == {"a": "x"}
    assert blamed({("a", "b"): "x"}) == {"a": "x", "b": "x"}
    one = {pair: "x" for pair in permutations("abcd", 2) if "c" in pair}
    assert blamed(one) == {"c": "x"}
    two = {pair: "x" for pair in permutations("abcde", 2) if {"b", "d"} & set(pair)}
    assert set(blamed(two)) == {"b", "d"}


@given(st.sets(st.sampled_from([*permutations("abcde", 2), *[(x, x) for x in "abcde"]])))
def test_who_is_to_blame_explains_every_failure(pairs: set[tuple[str, str]]) -> None:
    named = set(blamed(dict.fromkeys(pairs, "x")))
    assert all(named & set(pair) for pair in pairs)
    smallest = next(
        size for size in range(6)
        if any(all(set(some) & set(pair) for pair in pairs) for some in combinations("abcde", size))
    )  # fmt: skip
    assert bool(named) == bool(pairs)
    assert len(named) <= 2 * smallest + 1 or smallest == 0
