"""Node labels with the names and values of GPU feature discovery."""

import re
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.machine import capture
from agent.machine.survey import survey
from central.server.published_nodes import node_labels
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
        "nvidia.com/mps.capable": "false",
    }


# Of the outputs that GPU feature discovery v0.20.0 is tested with (expected-output*.txt there), and its documentation:
# the labels and their values.
NUMBER, TEXT = r"\d+", r"[A-Za-z0-9_.-]+"
PUBLISHED = {
    "cuda.driver.major": NUMBER, "cuda.driver.minor": NUMBER, "cuda.driver.rev": r"\d*",
    "cuda.driver-version.major": NUMBER, "cuda.driver-version.minor": NUMBER,
    "cuda.driver-version.revision": r"\d*", "cuda.driver-version.full": r"\d+\.\d+(\.\d+)?",
    "cuda.runtime.major": NUMBER, "cuda.runtime.minor": NUMBER,
    "cuda.runtime-version.major": NUMBER, "cuda.runtime-version.minor": NUMBER,
    "cuda.runtime-version.full": r"\d+\.\d+",
    "gfd.timestamp": r"\d{10}", "gpu.machine": r".*", "gpu.mode": "unknown|compute|graphics",
    "gpu.clique": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.\d+",
    "gpu.count": NUMBER, "gpu.replicas": NUMBER, "gpu.sharing-strategy": "none|mps|time-slicing",
    "gpu.product": TEXT, "gpu.memory": NUMBER, "gpu.family": "[a-z-]+",
    "gpu.compute.major": NUMBER, "gpu.compute.minor": NUMBER,
    "mig.capable": "true|false", "mps.capable": "true|false", "mig.strategy": "single|mixed",
    **{
        f"mig-PROFILE.{name}": value
        for name, value in {
            "count": NUMBER, "product": r"[A-Za-z0-9_.-]+-MIG-[\w.]+", "memory": NUMBER,
            "replicas": NUMBER, "sharing-strategy": "none|mps|time-slicing",
            "multiprocessors": NUMBER, "slices.gi": NUMBER, "slices.ci": NUMBER,
            **{f"engines.{engine}": NUMBER for engine in ("copy", "decoder", "encoder", "jpeg", "ofa")},
        }.items()
    },
}  # fmt: skip
NOT_WRITTEN = re.compile(
    r"gfd\.timestamp|gpu\.(machine|mode)|mig-PROFILE\.(multiprocessors|engines\..*)"
)
MACHINES = sorted(
    path.relative_to(CAPTURES).with_suffix("").as_posix() for path in CAPTURES.rglob("*.json")
)


def test_labels_are_those_that_gpu_feature_discovery_publishes() -> None:
    written = set()
    for name in MACHINES:
        topology = replace(of(name), driver_version="550.107.02", cuda_version="12.5")
        for key, value in node_labels.labels_of(topology).items():
            if not key.startswith("nvidia.com/"):
                continue
            published = re.sub(
                r"^mig-[^.]+\.\d+gb[^.]*(\.me)?\.", "mig-PROFILE.", key.removeprefix("nvidia.com/")
            )
            assert re.fullmatch(PUBLISHED[published], value), (name, key, value)
            written.add(published)
    assert written == {name for name in PUBLISHED if not NOT_WRITTEN.fullmatch(name)}


def test_divided_gpus_count_as_gpu_feature_discovery_counts_them() -> None:
    """As its unit tests of the strategies of MIG have it: all GPUs of the node, no replica where all are divided."""
    topology = of("dgx-a100-mig-8")
    divided = tuple(gpu for gpu in topology.gpus if gpu.mig)
    for gpus, replicas in (topology.gpus, "1"), (divided, "0"):
        found = node_labels.labels_of(replace(topology, gpus=gpus))
        assert found["nvidia.com/gpu.count"] == str(len(gpus))
        assert found["nvidia.com/gpu.replicas"] == replicas
        assert found["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    profiles = {"1g.10gb": ("1", "1"), "1c.3g.40gb": ("3", "1"), "7g.80gb": ("7", "7"), "1g.10gb+me": ("1", "1")}  # fmt: skip
    slice_ = divided[0].slices[0]
    for profile, (of_gpu, of_compute) in profiles.items():
        one = replace(divided[0], slices=(replace(slice_, profile=profile),))
        found = node_labels.labels_of(replace(topology, gpus=(one,)))
        name = f"nvidia.com/mig-{profile.replace('+', '.')}.slices"
        assert (found[f"{name}.gi"], found[f"{name}.ci"]) == (of_gpu, of_compute)


def test_slices_have_labels_by_profile() -> None:
    topology = of("dgx-a100-mig-8")
    found = node_labels.labels_of(topology)
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
    # One that is not registered with the fabric has none, and says nothing about the others.
    alone = replace(topology, gpus=(replace(first, clique=""), *others))
    assert node_labels.labels_of(alone)["nvidia.com/gpu.clique"] == said


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
