"""Sizes of elastic Jobs in what `lockstep simulate` prints."""

from io import StringIO

from rich.console import Console

from central.simulator import sim_report
from central.simulator.simulation_result import Resized, SimulationResult
from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, rigid
from tests.experiments.elastic import simulate


def printed(result: SimulationResult) -> list[str]:
    out = StringIO()
    sim_report.table(result, Console(file=out, width=200))
    return out.getvalue().splitlines()


def test_sizes_over_time_with_their_reasons() -> None:
    run = simulate([machine(0), elastic("e", 2, 8), rigid("r", 5, 100)], 1000)
    found = sim_report.to_json(run.result)
    first, *changes = found["sizes"]
    assert (first["namespace"], first["name"], first["members"]) == ("default", "e", 2)
    last = changes[-1]
    assert (last["members"], last["reason"]) == (3, "room for job r")
    assert last["at_s"] == 100
    assert found["metrics"]["resizes"] == len(changes)
    assert "at 100 s: default/e resized to 3 members: room for job r" in printed(run.result)
    assert sum("resized to" in line for line in printed(run.result)) == len(changes)


def test_the_first_size_of_each_job_is_no_change() -> None:
    """Jobs of equal names in two namespaces are two."""
    one, other = Resized(0.0, "a", "e", 2, "starts"), Resized(0.0, "b", "e", 2, "starts")
    result = SimulationResult(resized=[one, other, Resized(5.0, "b", "e", 1, "why")])
    assert sim_report.to_json(result)["metrics"]["resizes"] == 1
    assert "at 5 s: b/e resized to 1 member: why" in printed(result)
    assert not any("a/e resized" in line for line in printed(result))


def test_a_long_list_is_cut() -> None:
    sizes = [Resized(float(at), "a", "e", at, "why") for at in range(sim_report.LONGEST_TABLE + 2)]
    lines = printed(SimulationResult(resized=sizes))
    assert sum("resized to" in line for line in lines) == sim_report.LONGEST_TABLE
    assert f"... {len(sizes) - 1} changes of size in total" in lines
    exact = printed(SimulationResult(resized=sizes[:-1]))
    assert not any("in total" in line for line in exact)
