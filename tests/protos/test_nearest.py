"""The NICs for given GPUs, on captures of real machines and on Grace."""

from dataclasses import replace

import pytest

from agent.machine import capture
from agent.machine.survey import survey
from protos.nearest import adjacent_nics, nearest, rails
from protos.topology import NodeTopology, mask_of
from tests.agent.nvml_fixture import CAPTURES


def seen(name: str) -> NodeTopology:
    return survey(capture.load(CAPTURES / f"{name}.json"))


def choose(topology: NodeTopology, gpus: list[int], size: int, **room: int) -> list[int]:
    names = {hca.name: 16 for hca in topology.hcas if hca.name in rails(topology)} | room
    found = nearest(topology, mask_of(gpus), names, size)
    return [int(name.removeprefix("mlx5_")) for name in found]


@pytest.mark.parametrize(
    ("name", "cards"),
    [
        ("hgx-h100-8", [0, 3, 4, 5, 6, 9, 10, 11]),  # 1, 2, 7 and 8 are Ethernet, 100 Gb/s
        ("dgx-a100-8", [0, 1, 2, 3, 6, 7, 8, 9]),
        ("dgx2-v100-16", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("gb200-nvl72-tray-4", [0, 1, 4, 5]),  # no switch: the fastest; 200 Gb/s are BlueFields
        ("single-gpu", []),
    ],
)
def test_rails_are_separated_from_storage_and_management(name: str, cards: list[int]) -> None:
    assert list(rails(seen(name))) == [f"mlx5_{number}" for number in cards]


def test_each_gpu_of_a_big_machine_gets_its_own_nic() -> None:
    hgx = seen("hgx-h100-8")
    own = [0, 3, 4, 5, 6, 9, 10, 11]
    assert [choose(hgx, [gpu], 1) for gpu in range(8)] == [[card] for card in own]
    assert sorted(choose(hgx, list(range(8)), 8)) == own
    assert sorted(choose(hgx, [2, 6], 2)) == [4, 10]


def test_two_nics_behind_one_switch_alternate() -> None:
    dgx = seen("dgx-a100-8")
    assert choose(dgx, [0, 1], 1) == [0]
    assert choose(dgx, [0, 1], 1, mlx5_0=3, mlx5_1=4) == [1]
    assert sorted(choose(dgx, [0, 1], 2)) == [0, 1]


def test_on_grace_the_socket_decides() -> None:
    tray = seen("gb200-nvl72-tray-4")
    assert choose(tray, [0], 1) == choose(tray, [0, 1], 1) == [0]
    assert choose(tray, [2, 3], 1) == [4]
    assert sorted(choose(tray, [2, 3], 2)) == [4, 5]
    assert sorted(choose(tray, [1, 2], 2)) == [0, 4]


def test_more_shares_than_nics_and_fewer_free_than_requested() -> None:
    dgx1 = seen("dgx1-v100-8")
    assert sorted(choose(dgx1, [0], 5)) == [0, 0, 1, 2, 3]
    nothing = {"mlx5_0": 0, "mlx5_1": 0, "mlx5_2": 1, "mlx5_3": 0}
    assert choose(dgx1, [0], 5, **nothing) == [2]


def test_without_gpus_the_least_used_nic() -> None:
    dgx1 = seen("dgx1-v100-8")
    assert choose(dgx1, [], 1, mlx5_0=2, mlx5_2=9, mlx5_1=1, mlx5_3=9) == [2]
    assert nearest(NodeTopology(), 0, {"mlx5_0": 3}, 1) == ()
    alone = replace(dgx1, gpus=(), links=tuple(row[8:] for row in dgx1.links[8:]))
    assert len(rails(alone)) == 4


def test_the_nics_adjacent_to_gpus() -> None:
    def told(name: str, *gpus: int) -> list[int]:
        return [
            int(card.removeprefix("mlx5_")) for card in adjacent_nics(seen(name), mask_of(gpus))
        ]

    assert [told("hgx-h100-8", gpu) for gpu in (0, 2, 6)] == [[0], [4], [10]]
    assert told("hgx-h100-8", 2, 6) == [4, 10]
    assert told("dgx-a100-8", 0, 1) == [0, 1], "both are behind the switch of both"
    assert told("single-gpu", 0) == []
