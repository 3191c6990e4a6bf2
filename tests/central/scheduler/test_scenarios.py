"""Every file in tests/scenarios; `pytest --update-golden` rewrites what stands below the line."""

from pathlib import Path

import pytest

from tests.central.scheduler import scenario

FILES = sorted((Path(__file__).parents[2] / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    above, _, below = text.partition("---\n")
    answer = "".join(f"{line}\n" for line in scenario.play(text))
    if request.config.getoption("--update-golden"):
        path.write_text(f"{above}---\n{answer}")
    else:
        assert answer == below


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 10
