"""One API server for all of these tests, and one for those of sizes."""

from collections.abc import Iterator

import pytest

from central.model.json_types import Json
from central.standalone.pod_status import runs_for_s
from tests.e2e.controllers.gangs import free
from tests.e2e.controllers.stage import Stage

ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


def run_s(pod: Json) -> float | None:
    """Pods of a JobSet's second attempt end well."""
    if (pod["metadata"].get("labels") or {}).get(ATTEMPT, "0") != "0":
        return 5.0
    return runs_for_s(pod)


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    with Stage(run_s) as made:
        made.start_all()
        yield made


@pytest.fixture(scope="session")
def sizing() -> Iterator[Stage]:
    """The scheduler decides sizes."""
    with Stage(runs_for_s, "--elastic-controllers", components=("elastic",)) as made:
        made.start_all()
        yield made


@pytest.fixture(autouse=True)
def freed(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in {"stage", "sizing"} & set(request.fixturenames):
        used: Stage = request.getfixturevalue(name)
        free(used)
        assert used.refusals() == []
