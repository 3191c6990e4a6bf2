"""A cgroup tree whose rdma controller accepts and rejects writes as Linux 6.1 and 6.12 do."""

import errno
import os
import re
from pathlib import Path

from agent.cgroups import CgroupFiles

Limits = dict[str, int]  # hca_handle, hca_object; -1: max
KEYS = ("hca_handle", "hca_object")
NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*")
MOST = 2**31 - 1


class FakeKernel(CgroupFiles):
    def __init__(self, root: Path, version: int = 2, *, enabled: bool = False) -> None:
        self.root, self.version = root, version
        self.base = root if version == 2 else root / "rdma"
        self.cards: list[str] = []
        self.limits: dict[Path, dict[str, Limits]] = {}
        self.used: dict[tuple[Path, str], Limits] = {}
        self.writes: list[tuple[str, str]] = []
        self.deaf = False  # accepts writes without effect
        self.base.mkdir(parents=True, exist_ok=True)
        if version == 2:
            (root / "cgroup.controllers").write_text("cpu memory pids rdma\n")
            (root / "cgroup.subtree_control").write_text("rdma\n" if enabled else "\n")

    def pod(self, path: str, hierarchy: str = "") -> Path:
        """Creates the directories as a kubelet does: without the controller, except in its own v1
        tree."""
        folder = (self.root / hierarchy if hierarchy else self.base) / path
        for each in (*reversed(folder.parents), folder):
            if each.is_relative_to(self.base) and each != self.base:
                self.make(each)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def plug(self, card: str) -> None:
        self.cards.append(card)
        for limits in self.limits.values():
            limits[card] = dict.fromkeys(KEYS, -1)
        self._render()

    def unplug(self, card: str) -> None:
        self.cards.remove(card)
        for limits in self.limits.values():
            del limits[card]
        self._render()

    def use(self, folder: Path, card: str, handles: int, objects: int) -> None:
        self.used[folder, card] = {"hca_handle": handles, "hca_object": objects}
        self._render()

    # What the agent does

    def make(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        if self.version == 2:
            (folder / "cgroup.subtree_control").touch()
        if self.version == 1 or self._enabled(folder.parent):
            self._controlled(folder)

    def write(self, file: Path, text: str) -> None:
        self.writes.append((str(file.relative_to(self.root)), text))
        if not file.exists():
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        if file.name == "cgroup.subtree_control":
            if file.parent != self.root and not self._enabled(file.parent.parent):
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
            file.write_text("rdma\n")
            for child in file.parent.iterdir():
                if child.is_dir():
                    self._controlled(child)
        elif not self.deaf:
            self._limit(self.limits[file.parent], text)
            self._render()

    def _limit(self, limits: dict[str, Limits], text: str) -> None:
        if not text:
            return
        card, *words = text.strip(" \n").split(" ")
        if card not in self.cards:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        new: Limits = {}
        for word in (part for each in words for part in each.split("\n")):
            if word in self.cards:
                continue  # a second line applies to the first NIC
            key, equals, value = word.partition("=")
            number = NUMBER.match(value)
            if key not in KEYS or not equals:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            if "max".startswith(value):
                new[key] = -1
            elif number is None or (count := _c_number(number.group())) > MOST:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            else:
                new[key] = -1 if count == MOST else count
        limits[card].update(new)

    def _enabled(self, folder: Path) -> bool:
        control = folder / "cgroup.subtree_control"
        return control.exists() and "rdma" in control.read_text()

    def _controlled(self, folder: Path) -> None:
        if folder not in self.limits:
            self.limits[folder] = {card: dict.fromkeys(KEYS, -1) for card in self.cards}
            self._render()

    def _render(self) -> None:
        none = dict.fromkeys(KEYS, 0)
        for folder, limits in self.limits.items():
            used = {card: self.used.get((folder, card), none) for card in limits}
            (folder / "rdma.max").write_text(_text(limits))
            (folder / "rdma.current").write_text(_text(used))


def _c_number(text: str) -> int:
    if text.lower().startswith("0x"):
        return int(text, 16)
    return int(text, 8 if text.startswith("0") else 10)


def _text(rows: dict[str, Limits]) -> str:
    def word(number: int) -> str:
        return str(number) if number >= 0 else "max"

    return "".join(
        f"{card} {' '.join(f'{key}={word(row[key])}' for key in KEYS)} \n"
        for card, row in rows.items()
    )
