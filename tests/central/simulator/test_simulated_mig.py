"""MIG slices in a simulation: those of a captured machine, or numbers in a manifest."""

from tests.central.simulator.manifests import Json, Simulate, node, pod

ONE, TWO = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"


def part(name: str, resource: str, count: int = 1, runs: str = "100s") -> Json:
    made = pod(name, runs=runs)
    made["spec"]["containers"][0]["resources"] = {"limits": {resource: count}}
    return made


def test_slices_of_a_captured_machine(simulate: Simulate) -> None:
    """Six whole GPUs, nine small slices, one of ten gigabytes."""
    pods = [part(f"s{number}", ONE) for number in range(10)]
    told = simulate(
        node("a", capture="dgx-a100-mig-8"),
        *pods,
        part("m0", TWO),
        part("m1", TWO),
        pod("w", 6, runs="50s"),
        pod("v", 7, runs="50s"),
    )
    at = {each["pod"]: each["at_s"] for each in told["placements"]}
    assert sum(at[f"s{number}"] < 1 for number in range(10)) == 9
    assert sorted((at["m0"] >= 100, at["m1"] >= 100)) == [False, True]
    assert at["w"] < 1
    (waiting,) = told["waiting"]
    assert "can never start: no node has 7 GPUs, the most is 6" in waiting["reason"]


def test_slices_by_number(simulate: Simulate) -> None:
    machine = node("a", 0)
    machine["status"]["allocatable"] |= {ONE: "2"}
    told = simulate(machine, *(part(f"s{number}", ONE) for number in range(3)), part("x", TWO))
    assert sum(each["at_s"] >= 100 for each in told["placements"]) == 1
    assert "there are no 2g.10gb slices" in told["waiting"][0]["reason"]
