"""The device files of the devices that this node has now."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from agent import devicenodes
from agent.node import Node
from protos.topology import Hca

T = TypeVar("T")


class DeviceFiles:
    """minors: the numbers of GPUs' files, by uuid. policy: see devicenodes.paths."""

    def __init__(self, node: Node, minors: Mapping[str, int], policy: str, dev_root: Path) -> None:
        self._node, self._minors = node, minors
        self._policy, self._dev = policy, dev_root

    def of(self, uuids: Sequence[str]) -> tuple[str, ...]:
        """Of GPUs. Raises ValueError where the policy says so."""
        return devicenodes.paths(uuids, self._minors, self._policy, self._dev)

    def of_cards(self, cards: Sequence[Hca]) -> tuple[str, ...]:
        names = [card.uverbs for card in cards if card.uverbs]
        return devicenodes.cards(names, self._policy, self._dev)

    def gpus(self) -> dict[str, tuple[str, ...]]:
        """By uuid; those without a file are left out."""
        uuids = [gpu.uuid for gpu in self._node.state.topology.gpus]
        return {uuid: files for uuid in uuids if (files := _safely(self.of, uuid))}

    def cards(self) -> dict[str, tuple[str, ...]]:
        """By name, of those that are offered."""
        cards = [card for card in self._node.state.topology.hcas if card.shares]
        found = ((card.name, _safely(self.of_cards, card)) for card in cards)
        return {name: files for name, files in found if files}


def _safely(files: Callable[[Sequence[T]], tuple[str, ...]], one: T) -> tuple[str, ...]:
    try:
        return files([one])
    except ValueError:  # --pass-device-nodes=always, and it has none
        return ()
