from pathlib import Path

import pytest

from tests.central.simulator.manifests import Simulate


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulate:
    return Simulate(tmp_path, capsys)
