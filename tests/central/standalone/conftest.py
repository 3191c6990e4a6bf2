from collections.abc import Iterator

import pytest

from central.standalone.apiserver import StandaloneApi
from tests.central.standalone.api_caller import Caller


@pytest.fixture
def api() -> Iterator[StandaloneApi]:
    with StandaloneApi(history=50, bookmark_s=0.1) as server:
        yield server


@pytest.fixture
def call(api: StandaloneApi) -> Iterator[Caller]:
    caller = Caller(api.url)
    yield caller
    caller.api.rest_client.pool_manager.clear()
