"""How much of each network card a pod may take: the kernel's rdma.max, one write per card.

A write that succeeds proves nothing (two lines in one write land on the first card, `=` means max,
010 is eight): what was written is read back. A card that comes back has lost its limits; keep() writes
them again."""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.backoff import StateLogger
from agent.cgroups import Cgroups, Files
from agent.kubelet import checkpoint
from agent.node import AgentNode
from agent.resources.device_resource import ContainerKey, Refused
from protos.names import RDMA
from protos.nearest import card_of
from protos.topology import RdmaLimit, RdmaUse

log = logging.getLogger(__name__)

MOST = 2**31 - 1  # the kernel's word for it is max
NUMBER = re.compile(r"(\S+?)=(\d+|max)(?=\s|$)")
NO_LIMIT = RdmaLimit()


def line(card: str, limit: RdmaLimit) -> str:
    if card.split() != [card] or max(limit.hca_handle, limit.hca_object) > MOST:
        raise ValueError(f"no limit for {card!r}: {limit}")
    return f"{card} hca_handle={_word(limit.hca_handle)} hca_object={_word(limit.hca_object)}"


def _word(number: int) -> str:
    return str(number) if 0 <= number < MOST else "max"


def parse(text: str) -> dict[str, RdmaLimit]:
    """Lines of rdma.max or rdma.current, by card; newer kernels may have more keys."""
    found = {}
    for row in text.splitlines():
        card, _, rest = row.strip().partition(" ")
        if card:
            told = _numbers(rest)
            found[card] = RdmaLimit(told.get("hca_handle", -1), told.get("hca_object", -1))
    return found


def failures(text: str) -> dict[str, int]:
    """Lines of rdma.events: how often a card's limits were in the way."""
    found = {}
    for row in text.splitlines():
        card, _, rest = row.strip().partition(" ")
        told = _numbers(rest)
        found[card] = sum(count for key, count in told.items() if key.endswith(".alloc_fail"))
    return found


def _numbers(text: str) -> dict[str, int]:
    return {key: -1 if value == "max" else int(value) for key, value in NUMBER.findall(text)}


def write(files: Files, folder: Path, card: str, limit: RdmaLimit) -> None:
    """Raises Refused."""
    file = folder / "rdma.max"
    try:
        files.write(file, line(card, limit))
        got = parse(files.read(file)).get(card)
    except OSError as error:
        raise Refused(f"{file} does not take the limit of {card}: {error.strerror}") from None
    if got != limit:
        raise Refused(f"{file} says {got} for {card} after {limit} was written")


class Limits:
    """defaults are for pods that wish nothing. cgroups None: nothing may be written."""

    def __init__(
        self, node: AgentNode, cgroups: Cgroups | None, plugins: Path, defaults: RdmaLimit
    ) -> None:
        self._node, self._cgroups, self._plugins = node, cgroups, plugins
        self._defaults = defaults
        self._log = StateLogger(log)
        self._failed: dict[tuple[str, str, str], int] = {}

    def pre_start(self, ids: tuple[str, ...], holder: ContainerKey | None) -> None:
        """Writes the limits of the pod whose container is about to start with these shares. Raises
        Refused where a wish can't be kept; the defaults give way."""
        wish = self._wish(holder[:2] if holder else None)
        limit = self._limit(wish)
        if limit == NO_LIMIT and not wish:
            return
        cards = sorted(set(map(card_of, ids)))
        try:
            if self._cgroups is None:
                raise Refused("this agent may not write cgroups (--cgroup-root)")
            folder = self._cgroups.pod(self._uid(ids, holder))
            for card in cards:
                if wish:
                    self._fits(folder, card, limit)
                write(self._cgroups.files, folder, card, limit)
        except Refused as refused:
            if wish:
                raise Refused(
                    f"the pod's limits of {', '.join(cards)} can't be set: {refused}"
                ) from None
            self._log.failed(f"default limits of {', '.join(cards)} are not set: {refused}")
            return
        log.info("%s: %s", folder.name, "; ".join(line(card, limit) for card in cards))

    def _wish(self, pod: tuple[str, str] | None) -> Mapping[str, int]:
        for plan in self._node.state.intents:
            if plan.resource == RDMA and (plan.namespace, plan.pod) == pod and plan.limits:
                return dict(plan.limits)
        return {}

    def _limit(self, wish: Mapping[str, int]) -> RdmaLimit:
        return RdmaLimit(
            wish.get("hca_handle", self._defaults.hca_handle),
            wish.get("hca_object", self._defaults.hca_object),
        )

    def _uid(self, ids: tuple[str, ...], holder: ContainerKey | None) -> str:
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            raise Refused(str(error)) from None
        for entry in entries:
            held = entry.resource == RDMA and entry.device_ids == tuple(sorted(ids))
            if held and (holder is None or entry.container == holder[2]):
                return entry.uid
        raise Refused(f"the kubelet's checkpoint does not say whose {', '.join(sorted(ids))} are")

    def _fits(self, folder: Path, card: str, limit: RdmaLimit) -> None:
        """Whoever is above binds too: more than there is would not be what was wished."""
        cgroups = self._cgroups
        assert cgroups is not None
        for above in folder.parents:
            if above == cgroups.base or not above.is_relative_to(cgroups.base):
                return
            try:
                most = parse(cgroups.files.read(above / "rdma.max")).get(card, NO_LIMIT)
            except OSError:
                continue
            for key, wanted, have in (
                ("hca_handle", limit.hca_handle, most.hca_handle),
                ("hca_object", limit.hca_object, most.hca_object),
            ):
                if have >= 0 and wanted > have:
                    raise Refused(f"{wanted} {key} wished, all pods may have {have} ({above.name})")

    # While pods run

    def keep(self) -> tuple[RdmaUse, ...]:
        """Writes again what a card has lost, and tells what is used."""
        if self._cgroups is None or not self._cgroups.version():
            return ()
        try:
            entries = [each for each in checkpoint.read(self._plugins) if each.resource == RDMA]
        except OSError as error:
            self._log.failed(str(error))
            return ()
        holders = {
            (grant.container, grant.device_ids): (grant.namespace, grant.pod)
            for grant in self._node.state.grants
            if grant.resource == RDMA
        }
        pods: dict[str, tuple[tuple[str, str], set[str]]] = {}
        for entry in entries:
            pod = holders.get((entry.container, entry.device_ids))
            if pod is not None:
                pods.setdefault(entry.uid, (pod, set()))[1].update(map(card_of, entry.device_ids))
        used: list[RdmaUse] = []
        for uid, (pod, cards) in sorted(pods.items()):
            try:
                used += self._keep(uid, pod, cards)
            except (OSError, Refused) as error:
                self._log.failed(f"limits of {'/'.join(pod)}: {error}")
        self._tell(used)
        return tuple(used)

    def _keep(self, uid: str, pod: tuple[str, str], cards: Iterable[str]) -> list[RdmaUse]:
        cgroups = self._cgroups
        assert cgroups is not None
        folder = cgroups.find(uid)
        if folder is None:
            return []
        wanted = self._limit(self._wish(pod))
        if wanted != NO_LIMIT:
            folder = cgroups.pod(uid)
        elif not (folder / "rdma.max").exists():
            return []
        known = parse(cgroups.files.read(folder / "rdma.max"))
        present = sorted(set(cards) & known.keys())  # a card that is away has no line
        for card in present:
            if wanted not in (NO_LIMIT, known[card]):
                write(cgroups.files, folder, card, wanted)
                log.info("%s/%s: again %s", *pod, line(card, wanted))
                known[card] = wanted
        current = parse(cgroups.files.read(folder / "rdma.current"))
        events = folder / "rdma.events"  # since Linux 7.2
        failed = failures(cgroups.files.read(events)) if events.exists() else {}
        return [
            RdmaUse(*pod, card, current.get(card, NO_LIMIT), known[card], failed.get(card, -1))
            for card in present
        ]

    def _tell(self, used: Iterable[RdmaUse]) -> None:
        now = {(use.namespace, use.pod, use.card): use for use in used}
        for key, use in now.items():
            if use.failures > self._failed.get(key, 0):
                log.warning("%s/%s was refused RDMA resources at its limit on %s", *key)
        self._failed = {key: use.failures for key, use in now.items()}
