"""One cluster for all of these tests: built, started, loaded with images and the shipped manifests,
and taken down at the end. E2E_KEEP=1 leaves it, and the next run with it takes it over, with
images made anew; `python -m tests.e2e.cluster down` ends it."""

import itertools
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protos import names
from tests.e2e import hardware, images, promises
from tests.e2e.cluster import verbs
from tests.e2e.cluster.api import Refused
from tests.e2e.cluster.settings import KUBE, STATE, Trouble, say, versions
from tests.e2e.world import NAMESPACE, World, shipped, until

NOISE = re.compile(
    r"perf_event|operationExecutor|clientconn|passthrough|endpoint.go|opology|oom score"
)
# Files of more than a minute go first, so that both clusters end together.
LONG = (
    "rdma",
    "elastic_training",
    "node_components",
    "the_chart",
    "fifty_pods",
    "killed_training",
    "job_record",
    "mig",
)
_numbers = itertools.count(1)
os.environ.pop("COLUMNS", None)  # of pytest-xdist's workers; commands would fit their tables to it


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves variants that are marked nightly to make nightly, and begins with the longest files."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG)
    named = set(promises.names())
    for item in items:
        promised = "tests/e2e/" in item.nodeid and getattr(item, "originalname", "") in named
        if promised and item.get_closest_marker("nightly") is None:
            item.add_marker("promise")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any("tests/e2e/" in str(r.nodeid) for r in terminalreporter.stats.get("passed", ())):
        terminalreporter.write_line(f"Kubernetes {KUBE}: {versions()}")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("e2e")
    keep = bool(os.environ.get("E2E_KEEP"))
    try:
        _up(folder, reuse=keep)
        yield World()
    except Trouble as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        if not keep:
            verbs.down()


def _up(folder: Path, *, reuse: bool) -> None:
    there = (STATE / "cluster.json").exists()
    if there and not reuse:
        verbs.down()  # an earlier run was killed
    verbs.build()
    with ThreadPoolExecutor() as pool:  # packages are fetched while the cluster starts
        archives = pool.submit(images.build, folder)
        if not (there and reuse):
            machines = {"node-1": ("dgx-a100-8", "r1"), "node-2": ("hgx-h100-8", "r2")}
            nodes = [
                hardware.node(name, capture, STATE / "hardware", {names.RACK: rack})
                for name, (capture, rack) in machines.items()
            ]
            verbs.up({"nodes": nodes})
        verbs.load_images(archives.result(), verbs.nodes_defined())
    say("the images are loaded")
    # This kubectl may be too old for components. A component is more than the default does without.
    done = verbs.kubectl("apply", "-f", "-", stdin=shipped("watch", "mps"))
    if done.returncode:
        raise Trouble(f"kubectl apply -f daemonset: {done.stderr}")
    if there and reuse:
        verbs.kubectl("-n", NAMESPACE, "delete", "pods", "--all")


@pytest.fixture(scope="session")
def cluster(world: World) -> World:
    """The same, once every agent has registered and reported."""
    until("8 allocatable GPUs on every node", lambda: set(world.allocatable().values()) == {8}, 120)
    until("every agent's report", lambda: all(v.topology.gpus for v in world.views()), 60)
    world.first_starts = until("four ready pods", world.restarts_of_ready, 120)
    say("the agents have registered and reported")
    return world


@pytest.fixture
def namespace(cluster: World) -> Iterator[str]:
    """A namespace for one test, emptied of pods before the next one starts."""
    name = f"test-{next(_numbers)}"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    until("the namespace's account", lambda: verbs.account_ready(cluster.api, name))
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
    _empty(cluster, name)
    until("the test's pods to be gone", lambda: not cluster.pods(name), 120)
    until("GPUs to be free", lambda: not cluster.truth() and not cluster.books(), 120)


def _empty(cluster: World, namespace: str) -> None:
    """Nothing new can be made in it by now, but Kubernetes waits five seconds before it deletes what is there, and then
    as long as pods ask for. One second is given to those that ask for more."""
    for group, kind in (
        ("apis/batch.volcano.sh/v1alpha1", "jobs"),
        ("apis/scheduling.volcano.sh/v1beta1", "podgroups"),
        ("api/v1", "pods"),
    ):
        try:
            cluster.api.call("DELETE", f"/{group}/namespaces/{namespace}/{kind}")
        except Refused as error:
            if error.status != 404:  # there is no such kind any more
                raise
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.call("DELETE", pods, {"gracePeriodSeconds": 1})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]  # pluggy's wrapper
    report = yield
    if report.failed and (STATE / "cluster.json").exists() and "world" in item.fixturenames:  # type: ignore[attr-defined]  # a Function has it
        for title, text in _evidence():
            report.sections.append((title, text))
    return report


def _evidence() -> Iterator[tuple[str, str]]:
    """What the parts have said, newest last, without what kubelets always say."""
    yield "pods", verbs.kubectl("get", "pods", "-A", "-o", "wide").stdout
    events = verbs.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp").stdout
    yield "events", _last(events, 15)
    for name in ("lockstep-central", "lockstep-agent", "lockstep-keeper"):
        selector = f"-lapp.kubernetes.io/name={name}"
        argv = ("-n", NAMESPACE, "logs", selector, "--tail=40", "--prefix")
        yield name, verbs.kubectl(*argv).stdout
    for node in verbs.nodes_defined():
        log = node.log / "kubelet.log"
        if log.exists():
            lines = [x for x in log.read_text(errors="replace").splitlines() if not NOISE.search(x)]
            yield f"kubelet of {node.name}", _last("\n".join(lines), 25)


def _last(text: str, count: int) -> str:
    return "\n".join(line[:300] for line in text.splitlines()[-count:])
