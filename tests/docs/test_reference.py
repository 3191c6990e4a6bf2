"""The reference pages say what the code says."""

import pytest
import yaml

from central.model import event_reasons
from tests.docs import event_meanings, reference
from tests.manifests import chart_files


@pytest.mark.parametrize("name", reference.PAGES)
def test_page_is_as_the_code_has_it(name: str) -> None:
    there = (reference.FOLDER / name).read_text()
    assert there == reference.page(name), "write it again: make reference"


def test_every_event_has_a_meaning() -> None:
    reasons = {value for name, value in vars(event_reasons).items() if name.isupper()}
    assert reasons
    assert reasons - {each.name for each in event_meanings.EVENT_REASONS} == set()


def test_every_field_of_a_custom_resource_has_a_meaning() -> None:
    rows = [line for line in reference.kinds().splitlines() if line.startswith("- `")]
    assert rows
    assert [line for line in rows if not line.partition(": ")[2].strip()] == []


def test_the_charts_schema_is_of_its_values_and_knows_every_flag() -> None:
    assert chart_files.SCHEMA.read_text() == chart_files.schema(), "write it again: make reference"


def test_the_chart_has_the_components_of_the_kustomization() -> None:
    """Their contents are compared by tests/manifests/test_chart_rendered.py, with Helm."""
    values = yaml.safe_load((chart_files.CHART / "values.yaml").read_text())["components"]
    assert set(values) == set(map(chart_files.in_values, chart_files.COMPONENTS))
    assert not any(each["enabled"] for each in values.values())
