"""The device files of the devices that this node has now."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from agent.node_state import AgentNode
from agent.resources import device_nodes
from agent.resources import mig_device_files as files
from protos import slicing
from protos.topology import Hca

T = TypeVar("T")


class DeviceFiles:
    """minors: the numbers of GPUs' files, by uuid. policy: see device_nodes.paths."""

    def __init__(
        self,
        node: AgentNode,
        minors: Mapping[str, int],
        policy: str,
        dev_root: Path,
        proc_root: Path,
    ) -> None:
        self._node, self._minors = node, minors
        self._policy, self._dev, self._proc = policy, dev_root, proc_root

    def of(self, uuids: Sequence[str]) -> tuple[str, ...]:
        """Of GPUs or slices. Raises ValueError where the policy says so."""
        topology = self._node.state.topology
        if parts := [each for each in slicing.of(topology) if each[1].uuid in uuids]:
            return files.paths(parts, self._minors, self._policy, self._dev, self._proc)
        return device_nodes.paths(uuids, self._minors, self._policy, self._dev)

    def of_cards(self, cards: Sequence[Hca]) -> tuple[str, ...]:
        names = [card.uverbs for card in cards if card.uverbs]
        return device_nodes.cards(names, self._policy, self._dev)

    def gpus(self) -> dict[str, tuple[str, ...]]:
        """And slices, by uuid; those without a file are left out, and those whose name can't be one."""
        topology = self._node.state.topology
        uuids = [gpu.uuid for gpu in topology.gpus if not gpu.mig]
        uuids += [part.uuid for _, part in slicing.of(topology) if "/" not in part.uuid]
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
