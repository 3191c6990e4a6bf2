from pathlib import Path

import pytest

from tests.agent.nvml_fixture import library


@pytest.fixture(scope="module")
def nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fake NVML library."""
    return library(tmp_path_factory.mktemp("nvml"))
