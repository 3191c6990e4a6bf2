"""The reference pages say what the code says."""

import pytest

from tests.docs import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_page_is_as_the_code_has_it(name: str) -> None:
    there = (reference.FOLDER / name).read_text()
    assert there == reference.page(name), "write it again: make reference"


def test_every_field_of_a_custom_resource_has_a_meaning() -> None:
    rows = [line for line in reference.kinds().splitlines() if line.startswith("| `")]
    assert rows
    assert [line for line in rows if not line.split("|")[-2].strip()] == []
