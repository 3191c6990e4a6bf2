"""The picture says what the numbers say."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from central.cli.main import main
from central.simulator import figure
from central.simulator.simulation_result import Load, Resized, SimulationResult
from tests.central.simulator.manifests import gang, node, pod

SVG = "{http://www.w3.org/2000/svg}"


def drawn(result: SimulationResult) -> ET.Element:
    return ET.fromstring(figure.svg(result))


def area(points: str) -> float:
    """Of a polygon, by the shoelace."""
    found = [tuple(map(float, point.split(","))) for point in points.split()]
    pairs = zip(found, found[1:] + found[:1], strict=True)
    return abs(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairs)) / 2


@pytest.mark.parametrize("jobs", [3, 2000])
def test_areas_are_gpu_seconds(jobs: int) -> None:
    """Exact while there are few events, and on average where there are many."""
    result = SimulationResult(gpus=10 * jobs, end_s=100.0)
    for number in range(jobs):
        begin, end = number * 50 / jobs, 50 + number * 50 / jobs
        result.held += [(begin, f"ns/j{number}", 10), (end, f"ns/j{number}", -10)]
    polygons = drawn(result).findall(f"{SVG}polygon")
    assert len(polygons) == min(jobs, 9)
    whole = (figure.WIDTH - figure.LEFT - figure.RIGHT) * figure.UPPER
    shares = sum(area(polygon.attrib["points"]) for polygon in polygons) / whole
    assert shares == pytest.approx(0.5, rel=0.01)


def test_an_empty_story_is_drawn_too() -> None:
    assert drawn(SimulationResult()).findall(f"{SVG}text")


def test_names_are_escaped_and_shortened() -> None:
    result = SimulationResult(gpus=1, end_s=1.0, held=[(0.0, "ns/<b>" + "x" * 50, 1)])
    texts = [element.text or "" for element in drawn(result).iter(f"{SVG}text")]
    assert any(text.startswith("ns/<b>xxx") and text.endswith("…") for text in texts)


def test_needs_are_ticks_where_elastic_gangs_shrank_for_others() -> None:
    result = SimulationResult(gpus=4, end_s=100.0, held=[(0.0, "ns/a", 4)])
    assert not [path for path in drawn(result).iter(f"{SVG}path") if path.get("class") == "needs"]
    for at_s, why in ((25.0, "room for 3 pods"), (25.0, "room for ns/b"), (75.0, "room for x")):
        result.resized.append(Resized(at_s, "ns", "a", 2, why))
    result.resized.append(Resized(50.0, "ns", "a", 4, "there is room for more"))
    (ticks,) = [path for path in drawn(result).iter(f"{SVG}path") if path.get("class") == "needs"]
    width = figure.WIDTH - figure.LEFT - figure.RIGHT
    places = [figure.LEFT + width * at_s / 100 for at_s in (25.0, 75.0)]
    found = [float(part.split()[0]) for part in ticks.attrib["d"].split("M")[1:]]
    assert found == pytest.approx(places, abs=0.1), "one for each moment"


def test_no_number_is_left_out_of_the_queue() -> None:
    loads = [Load(float(t), 0, abs(50 - t), 0) for t in range(100)]
    line = drawn(SimulationResult(gpus=1, end_s=100.0, loads=loads)).find(f"{SVG}polyline")
    assert line is not None
    assert len(line.attrib["points"].split()) == 200


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "in.json", tmp_path / "out.svg"
    objects = [node("a"), *gang("train", 2, 4, runs="1h"), pod("late", 8, runs="30m")]
    file.write_text("\n".join(map(json.dumps, objects)))
    assert main(["simulate", str(file), "--figure", str(out)]) == 0
    names = [element.text for element in ET.parse(out).iter(f"{SVG}text")]
    assert {"default/train", "default/late", "GPUs in use", "Pending"} <= set(names)
    assert main(["simulate", str(file), "--figure", "/no/such/folder/x.svg"]) == 2
    assert "--figure /no/such/folder/x.svg: No such file" in capsys.readouterr().err


def test_where_nobody_has_gpus_pods_are_drawn() -> None:
    result = SimulationResult(end_s=10.0)
    result.note(0.0, "ns/a", 0, 1)
    result.note(0.0, "ns/b", 0, 1)
    result.note(5.0, "ns/b", 0, -1)
    picture = drawn(result)
    assert next(element.text for element in picture.iter(f"{SVG}text")) == "Pods running"
    whole = (figure.WIDTH - figure.LEFT - figure.RIGHT) * figure.UPPER
    shares = [area(one.attrib["points"]) / whole for one in picture.findall(f"{SVG}polygon")]
    assert shares == pytest.approx([0.5, 0.25], rel=0.01)
