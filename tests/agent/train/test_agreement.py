"""What ranks agree on between two steps: what any of them knew one step before. With a process group that the test
plays, as PyTorch's reduces: a rank's call ends when all ranks have called."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from agent.train.agreement import LoneAgreement, TorchAgreement, process_group


class Tensor:
    def __init__(self, values: tuple[int, ...], device: str) -> None:
        self.values, self.device = list(values), device

    def tolist(self) -> list[int]:
        return self.values


class Group:
    """ranks that reduce together, call by call."""

    ReduceOp = SimpleNamespace(MAX="max")

    def __init__(self, backend: str = "gloo") -> None:
        self._backend, self.calls = backend, dict[int, list[Tensor]]()

    def get_backend(self) -> str:
        return self._backend

    def of(self, rank: int) -> Any:
        made = [0]

        def all_reduce(tensor: Tensor, *, op: str, async_op: bool) -> Any:
            assert (op, async_op) == ("max", True)
            call = self.calls.setdefault(made[0], [])
            made[0] += 1
            call.append(tensor)

            def wait() -> None:
                columns = list(zip(*(each.tolist() for each in call), strict=True))
                tensor.values = [max(column) for column in columns]

            return SimpleNamespace(wait=wait)

        return SimpleNamespace(ReduceOp=self.ReduceOp, get_backend=self.get_backend, all_reduce=all_reduce)  # fmt: skip


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(
        int64="int64",
        tensor=lambda known, dtype, device: Tensor(known, device),
        cuda=SimpleNamespace(current_device=lambda: 5),
    )
    monkeypatch.setitem(sys.modules, "torch", made)


def test_all_ranks_learn_the_largest_of_the_step_before() -> None:
    group = Group()
    ranks = [TorchAgreement(group.of(rank)) for rank in range(3)]
    known = [[(1, 0), (2, 4), (1, 9)], [(3, 1), (3, 1), (3, 1)], [(3, 2), (4, 0), (3, 2)]]
    agreed = [[rank.exchange(mine) for rank, mine in zip(ranks, step, strict=True)] for step in known]  # fmt: skip
    assert agreed == [[None] * 3, [(2, 9)] * 3, [(3, 1)] * 3]
    for rank in ranks:
        rank.settle()
        assert rank.exchange((0, 0)) is None, "what was under way is waited for, and dropped"


@pytest.mark.parametrize(("backend", "device"), [("gloo", "cpu"), ("nccl", "cuda:5"), ("cpu:gloo,cuda:nccl", "cuda:5")])  # fmt: skip
def test_the_tensor_is_where_the_backend_reduces(backend: str, device: str) -> None:
    group = Group(backend)
    TorchAgreement(group.of(0)).exchange((1, 2))
    [[tensor]] = group.calls.values()
    assert (tensor.device, tensor.tolist()) == (device, [1, 2])


def test_one_process_agrees_with_itself() -> None:
    alone = LoneAgreement()
    assert alone.exchange((1, 2)) == (1, 2)
    alone.settle()


def test_the_process_group_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    assert process_group() is None
    for available, initialized in ((False, False), (True, False), (False, True), (True, True)):
        made = SimpleNamespace(is_available=lambda a=available: a, is_initialized=lambda i=initialized: i)  # fmt: skip
        monkeypatch.setitem(sys.modules, "torch.distributed", made)
        assert (process_group() is made) == (available and initialized)
