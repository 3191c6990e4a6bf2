from collections.abc import Iterator

import pytest

from tests.central.standalone.api_caller import Caller
from tests.fakes.faulty_api import FaultyApi


@pytest.fixture
def api() -> Iterator[FaultyApi]:
    with FaultyApi(history=50, bookmark_s=0.1) as server:
        yield server


@pytest.fixture
def call(api: FaultyApi) -> Iterator[Caller]:
    caller = Caller(api.url)
    yield caller
    caller.api.rest_client.pool_manager.clear()
