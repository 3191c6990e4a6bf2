"""One cluster for all of these tests: built, started, loaded with images and the shipped manifests,
and taken down at the end (E2E_KEEP=1 leaves it; `python -m tests.e2e.cluster down` ends it)."""

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e import hardware, images
from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import ROOT, STATE, Trouble, say
from tests.e2e.world import NAMESPACE, World, until

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if os.geteuid():
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("e2e")
    if (STATE / "cluster.json").exists():
        verbs.down()  # an earlier run that was killed
    verbs.build()
    nodes = [
        hardware.node("node-1", "dgx-a100-8", folder, {"lockstep.dev/rack": "r1"}),
        hardware.node("node-2", "hgx-h100-8", folder, {"lockstep.dev/rack": "r2"}),
    ]
    try:
        with ThreadPoolExecutor() as pool:  # packages are fetched while the cluster starts
            archives = pool.submit(images.build, folder)
            verbs.up({"nodes": nodes})
            verbs.load_images(archives.result(), verbs.nodes_defined())
        say("the images are loaded")
        world = World()
        world.kubectl("apply", "-k", str(ROOT / "daemonset"))
        yield world
    except Trouble as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        if not os.environ.get("E2E_KEEP"):
            verbs.down()


@pytest.fixture(scope="session")
def cluster(world: World) -> World:
    """The same, once every agent has registered and reported."""
    until(
        "8 allocatable GPUs on every node",
        lambda: set(world.allocatable().values()) == {8},
        120,
    )
    until("every agent's report", lambda: all(v.topology.gpus for v in world.views()), 60)
    say("the agents have registered and reported")
    return world


@pytest.fixture
def namespace(cluster: World) -> Iterator[str]:
    """A namespace for one test, emptied of pods before the next one starts."""
    name = f"test-{next(_numbers)}"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    until("the namespace's account", lambda: verbs.account_ready(cluster.api, name), 20)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
    until("the test's pods to be gone", lambda: not cluster.pods(name), 60)
    until("GPUs to be free", lambda: not cluster.truth() and not cluster.books(), 60)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]  # pluggy's wrapper
    report = yield
    if report.failed and (STATE / "cluster.json").exists() and "world" in item.fixturenames:  # type: ignore[attr-defined]  # a Function has it
        for title, text in _evidence():
            report.sections.append((title, text))
    return report


def _evidence() -> Iterator[tuple[str, str]]:
    yield "pods", verbs.kubectl("get", "pods", "-A", "-o", "wide").stdout
    for name in ("lockstep-central", "lockstep-agent"):
        selector = f"-lapp.kubernetes.io/name={name}"
        argv = ("-n", NAMESPACE, "logs", selector, "--tail=60", "--prefix")
        yield name, verbs.kubectl(*argv).stdout
        yield (
            f"{name} pods",
            verbs.kubectl("-n", NAMESPACE, "describe", "pods", selector).stdout[-6000:],
        )
    for node in verbs.nodes_defined():
        log = node.log / "kubelet.log"
        if log.exists():
            lines = log.read_text(errors="replace").splitlines()[-40:]
            yield f"kubelet of {node.name}", "\n".join(lines)
