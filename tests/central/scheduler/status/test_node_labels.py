"""Node labels with the names and values of GPU feature discovery."""

import re
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.machine import capture
from agent.machine.survey import survey
from central.scheduler.status import node_labels
from protos.topology import Gpu, NodeTopology
from tests.central import factories
from tests.effort import examples

CAPTURES = Path(__file__).parents[3] / "captures"
VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


def of(name: str) -> NodeTopology:
    return survey(capture.load(CAPTURES / f"{name}.json"))


def test_a_dgx_a100() -> None:
    topology = replace(of("dgx-a100-8"), driver_version="550.54.15", cuda_version="12.4")
    assert node_labels.labels_of(topology) == {
        "nvidia.com/cuda.driver.major": "550",
        "nvidia.com/cuda.driver.minor": "54",
        "nvidia.com/cuda.driver.rev": "15",
        "nvidia.com/cuda.driver-version.major": "550",
        "nvidia.com/cuda.driver-version.minor": "54",
        "nvidia.com/cuda.driver-version.revision": "15",
        "nvidia.com/cuda.driver-version.full": "550.54.15",
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/cuda.runtime.minor": "4",
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": "4",
        "nvidia.com/cuda.runtime-version.full": "12.4",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true",
    }


def test_slices_have_labels_by_profile() -> None:
    topology = of("dgx-a100-mig-8")
    found = node_labels.labels_of(topology)
    whole = [gpu for gpu in topology.gpus if not gpu.mig]
    assert found["nvidia.com/gpu.count"] == str(len(whole))
    assert found["nvidia.com/mig.strategy"] == "mixed"
    profiles = {part.profile for gpu in topology.gpus for part in gpu.slices}
    assert profiles
    for profile in profiles:
        name = f"nvidia.com/mig-{profile}"
        count = sum(part.profile == profile for gpu in topology.gpus for part in gpu.slices)
        assert found[f"{name}.count"] == str(count)
        assert found[f"{name}.product"].endswith(f"-MIG-{profile}")


def test_a_clique_is_a_label_of_the_whole_node_only() -> None:
    topology = of("gb200-nvl72-tray-4")
    (clique,) = {gpu.clique for gpu in topology.gpus}
    cluster, _, number = clique.partition(".")
    said = node_labels.labels_of(topology)["nvidia.com/gpu.clique"]
    # GPU feature discovery writes it so: a UUID with hyphens, and the clique's number.
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+", said)
    assert said.replace("-", "") == clique == f"{cluster}.{number}"
    first, *others = topology.gpus
    mixed = replace(topology, gpus=(replace(first, clique="other.1"), *others))
    assert "nvidia.com/gpu.clique" not in node_labels.labels_of(mixed)


def test_what_differs_between_gpus_is_left_out() -> None:
    topology = factories.topology(2)
    first, second = topology.gpus
    mixed = replace(first, model="other", memory_bytes=2**35, capability="9.0")
    found = node_labels.labels_of(replace(topology, gpus=(mixed, second)))
    assert found["nvidia.com/gpu.count"] == "2"
    for name in ("product", "memory", "family", "compute.major"):
        assert f"nvidia.com/gpu.{name}" not in found


def test_families_by_compute_capability() -> None:
    one = factories.topology(1)
    expected = {
        "7.0": "volta", "7.5": "turing", "8.0": "ampere", "8.6": "ampere", "8.9": "ada-lovelace",
        "9.0": "hopper", "10.0": "blackwell", "10.3": "blackwell", "12.0": "blackwell",
        "13.0": "rubin", "99.0": "undefined", "": None, "x.y": None,
    }  # fmt: skip
    for capability, family in expected.items():
        gpu = replace(one.gpus[0], capability=capability)
        found = node_labels.labels_of(replace(one, gpus=(gpu,)))
        assert found.get("nvidia.com/gpu.family") == family, capability


def test_a_node_without_gpus_has_none() -> None:
    assert node_labels.labels_of(NodeTopology()) == {}


def test_only_own_labels_are_removed() -> None:
    current = {
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/mig-1g.10gb.count": "7",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.device-plugin": "true",
        "nvidia.com/mig.config": "all-disabled",
        "nvidia.com/mig-1g.10gb.engines.copy": "1",
        "kubernetes.io/os": "linux",
    }
    assert node_labels.changes(current, {"nvidia.com/gpu.count": "7"}) == {
        "nvidia.com/gpu.count": "7",
        "nvidia.com/gpu.family": None,
        "nvidia.com/mig-1g.10gb.count": None,
    }


TEXTS = st.text(max_size=90)
GPUS = st.builds(
    lambda model, capability, clique, memory: replace(
        factories.topology(1).gpus[0],
        model=model,
        capability=capability,
        clique=clique,
        memory_bytes=memory,
    ),
    TEXTS,
    st.one_of(TEXTS, st.sampled_from(["8.0", "9.0"])),
    TEXTS,
    st.integers(0, 2**63),
)


@settings(max_examples=examples(100), deadline=None)
@given(GPUS, TEXTS, TEXTS, st.dictionaries(st.sampled_from(sorted(node_labels.FIXED)), TEXTS))
def test_whatever_an_agent_sends_is_a_label_that_the_api_server_accepts(
    gpu: Gpu, driver: str, cuda: str, current: dict[str, str]
) -> None:
    topology = replace(factories.topology(1), gpus=(gpu,), driver_version=driver, cuda_version=cuda)
    wanted = node_labels.labels_of(topology)
    for key, value in wanted.items():
        assert key in node_labels.FIXED
        assert len(value) <= 63
        assert VALUE.fullmatch(value)
    after = {**current, **node_labels.changes(current, wanted)}
    assert {key: value for key, value in after.items() if value is not None} == wanted
