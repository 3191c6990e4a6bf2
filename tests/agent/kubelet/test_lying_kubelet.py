"""Whatever the kubelet says, no device is allocated twice."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protos.names import GPU
from tests.fakes import machines
from tests.fakes.eventually import eventually
from tests.fakes.lying_kubelet import LyingKubelet
from tests.fakes.nodebox import NodeBox, gpus, intent, pod

PATIENCE_S = 120.0  # a fence for busy machines; none of it takes seconds


@contextmanager
def lying_box(seed: int = 0) -> Iterator[tuple[NodeBox, LyingKubelet]]:
    with tempfile.TemporaryDirectory(prefix="ls-") as name:
        directory = Path(name)
        (directory / "next").mkdir()
        with LyingKubelet(directory, seed) as kubelet:
            box = NodeBox(directory, machines.machine(), kubelet)
            box.configure(sysfs_root=directory / "sys")
            try:
                box.start()
                yield box, kubelet
            finally:
                box.agent.stop()


def assert_alone(kubelet: LyingKubelet) -> None:
    given = [each for ids in kubelet.holders().values() for each in ids]
    assert len(given) == len(set(given)), kubelet.holders()


def test_a_forgotten_allocate_is_not_repeated() -> None:
    """A kubelet that prunes an ended pod while it answers List forgets the devices of an Allocate
    that it has not recorded yet, and offers them to the next pod."""
    with lying_box() as (box, kubelet):
        kubelet.asked_at_record = True
        for name, after in zip("abcd", "bcde", strict=True):
            given = gpus(kubelet.run_pod(pod(name, 2)))
            box.plan(intent(after, given))  # would be allocated at once if it were free
            assert_alone(kubelet)
        refused = kubelet.run_pod(pod("e", 1))
        assert refused.reason == "UnexpectedAdmissionError"
        assert "nvidia.com/gpu GPU-" in refused.message
        assert "is taken: pod team/" in refused.message
        kubelet.end("uid-a")
        assert gpus(kubelet.run_pod(pod("f", 2)))
        assert_alone(kubelet)


def test_a_list_that_misses_a_pod_frees_nothing() -> None:
    with lying_box() as (box, kubelet):
        given = gpus(kubelet.run_pod(pod("a", 6)))
        eventually(lambda: box.truth() == {"a": given})
        kubelet.missing = {"a"}
        kubelet.offer_all()
        box.plan(intent("b", given[:2]))
        assert not set(gpus(kubelet.run_pod(pod("b", 2)))) & set(given)
        kubelet.offer_all()
        assert not kubelet.run_pod(pod("c", 1)).ok
        assert_alone(kubelet)


def test_a_late_list_frees_nothing() -> None:
    with lying_box() as (box, kubelet):
        kubelet.late = True  # no pod at all
        given = gpus(kubelet.run_pod(pod("a", 6)))
        kubelet.offer_all()
        box.plan(intent("b", given[:2]))
        assert not set(gpus(kubelet.run_pod(pod("b", 2)))) & set(given)
        assert_alone(kubelet)


def test_what_was_not_admitted_is_free_again() -> None:
    """The pod's second resource is refused after Allocate of the first: the kubelet gives both up."""
    with lying_box() as (box, kubelet):
        box.agent.node.record_allocation(GPU, (machines.uuid(0),), 1e9)
        assert sorted(gpus(kubelet.run_pod(pod("a", 8)))) == list(range(8))


@pytest.mark.parametrize("seed", range(4))
def test_stories_of_a_lying_kubelet(seed: int) -> None:
    order = random.Random(seed)
    admitted = 0
    with lying_box(seed) as (box, kubelet):
        for number in range(40):
            kubelet.tell_lies(order)
            living = sorted(kubelet.holders())
            if living and order.random() < 0.4:
                kubelet.end(order.choice(living))
            if order.random() < 0.05:
                kubelet.restart()
                eventually(lambda: kubelet.allocatable.get(GPU) == 8, PATIENCE_S)
            if order.random() < 0.05:
                box.restart_agent()
                eventually(lambda: box.agent.node.state.grants_known, PATIENCE_S)
                eventually(lambda: kubelet.allocatable.get(GPU) == 8, PATIENCE_S)
            size = order.randint(1, 3)
            box.plan(intent(f"p{number}", order.sample(range(8), size)))
            init = [1] if order.random() < 0.2 else []
            admitted += kubelet.run_pod(pod(f"p{number}", size, init=init)).ok
            assert_alone(kubelet)
    assert admitted >= 8
