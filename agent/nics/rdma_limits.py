"""Limits the RDMA resources of a pod on each of its NICs, through the kernel's rdma.max.

Every limit is written alone and read back, because the kernel also accepts what it misreads: two
lines in one write both apply to the first NIC, an empty value means max, and 010 is eight. A NIC
that is removed and returns has lost its limits; keep() restores them.

Design: docs/design/nics.md
"""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.backoff import StateLogger
from agent.bounded_files import exists
from agent.cgroups import CgroupFiles, Cgroups
from agent.kubelet import checkpoint
from agent.node import AgentNode
from agent.resources.device_resource import ContainerKey, Refused
from protos import nic_ids
from protos.topology import RdmaLimit, RdmaUse

log = logging.getLogger(__name__)

MOST = 2**31 - 1  # from here on the kernel writes max
NUMBER = re.compile(r"(\S{1,64}?)=([0-9]{1,10}|max)(?=\s|$)")
NO_LIMIT = RdmaLimit()


def max_line(nic: str, limit: RdmaLimit) -> str:
    if nic.split() != [nic] or max(limit.hca_handle, limit.hca_object) > MOST:
        raise ValueError(f"no limit for {nic!r}: {limit}")
    return f"{nic} hca_handle={_word(limit.hca_handle)} hca_object={_word(limit.hca_object)}"


def _word(number: int) -> str:
    return str(number) if 0 <= number < MOST else "max"


def parse(text: str) -> dict[str, RdmaLimit]:
    """The lines of rdma.max or rdma.current, by NIC. Unknown keys are ignored."""
    found = {}
    for row in text.splitlines():
        nic, _, rest = row.strip().partition(" ")
        if nic:
            values = _numbers(rest)
            found[nic] = RdmaLimit(values.get("hca_handle", -1), values.get("hca_object", -1))
    return found


def failures(text: str) -> dict[str, int]:
    """The lines of rdma.events: how many allocations failed at the limit, by NIC."""
    found = {}
    for row in text.splitlines():
        nic, _, rest = row.strip().partition(" ")
        values = _numbers(rest)
        found[nic] = sum(count for key, count in values.items() if key.endswith(".alloc_fail"))
    return found


def _numbers(text: str) -> dict[str, int]:
    return {key: -1 if value == "max" else int(value) for key, value in NUMBER.findall(text)}


def write(files: CgroupFiles, folder: Path, nic: str, limit: RdmaLimit) -> None:
    """Writes the limit and reads it back. Raises Refused."""
    file = folder / "rdma.max"
    try:
        files.write(file, max_line(nic, limit))
        got = parse(files.read(file)).get(nic)
    except OSError as error:
        raise Refused(f"could not write the limit of {nic} to {file}: {error.strerror}") from None
    if got != limit:
        raise Refused(f"{file} has {got} for {nic} after {limit} was written")


class RdmaLimitWriter:
    """Writes the limits of pods, and restores them. `defaults` apply to pods that request no
    limits. Without `cgroups` nothing is written."""

    def __init__(
        self, node: AgentNode, cgroups: Cgroups | None, plugins: Path, defaults: RdmaLimit
    ) -> None:
        self._node, self._cgroups, self._plugins = node, cgroups, plugins
        self._defaults = defaults
        self._log = StateLogger(log)
        self._failed: dict[tuple[str, str, str], int] = {}

    def pre_start(self, ids: tuple[str, ...], holder: ContainerKey | None) -> None:
        """Writes the limits of the pod whose container is about to start with these shares. Raises
        Refused if a requested limit can't be set; a default that can't be set is only logged."""
        requested = self._requested(holder[:2] if holder else None)
        limit = self._limit(requested)
        if limit == NO_LIMIT and not requested:
            return
        nics = sorted(set(map(nic_ids.names(self._node.state.topology), ids)))
        try:
            if self._cgroups is None:
                raise Refused("the agent can't write cgroups (--cgroup-root is not set)")
            folder = self._cgroups.pod(self._uid(ids, holder))
            for nic in nics:
                if requested:
                    self._check_parents(folder, nic, limit)
                write(self._cgroups.files, folder, nic, limit)
        except Refused as refused:
            if requested:
                raise Refused(
                    f"could not set the pod's RDMA limits on {', '.join(nics)}: {refused}"
                ) from None
            self._log.failed(
                f"could not set the default RDMA limits on {', '.join(nics)}: {refused}"
            )
            return
        log.info("%s: RDMA limits %s", folder.name, "; ".join(max_line(nic, limit) for nic in nics))

    def _requested(self, pod: tuple[str, str] | None) -> Mapping[str, int]:
        for plan in self._node.state.intents:
            if (
                nic_ids.are_nics(plan.resource)
                and (plan.namespace, plan.pod) == pod
                and plan.limits
            ):
                return dict(plan.limits)
        return {}

    def _limit(self, requested: Mapping[str, int]) -> RdmaLimit:
        return RdmaLimit(
            requested.get("hca_handle", self._defaults.hca_handle),
            requested.get("hca_object", self._defaults.hca_object),
        )

    def _uid(self, ids: tuple[str, ...], holder: ContainerKey | None) -> str:
        try:
            entries = checkpoint.read(self._plugins)
        except OSError as error:
            raise Refused(str(error)) from None
        for entry in entries:
            held = nic_ids.are_nics(entry.resource) and entry.device_ids == tuple(sorted(ids))
            if held and (holder is None or entry.container == holder[2]):
                return entry.uid
        raise Refused(f"the kubelet's checkpoint has no container with {', '.join(sorted(ids))}")

    def _check_parents(self, folder: Path, nic: str, limit: RdmaLimit) -> None:
        """Raises Refused if a cgroup above the pod allows less than the limit."""
        cgroups = self._cgroups
        assert cgroups is not None
        for above in folder.parents:
            if above == cgroups.base or not above.is_relative_to(cgroups.base):
                return
            try:
                most = parse(cgroups.files.read(above / "rdma.max")).get(nic, NO_LIMIT)
            except OSError:
                continue
            for key, requested, have in (
                ("hca_handle", limit.hca_handle, most.hca_handle),
                ("hca_object", limit.hca_object, most.hca_object),
            ):
                if have >= 0 and requested > have:
                    raise Refused(
                        f"{requested} {key} requested, {above.name} limits all pods to {have}"
                    )

    def keep(self) -> tuple[RdmaUse, ...]:
        """Restores lost limits, and returns the RDMA resources in use by pod and NIC."""
        if self._cgroups is None or not self._cgroups.version():
            return ()
        try:
            entries = [
                each for each in checkpoint.read(self._plugins) if nic_ids.are_nics(each.resource)
            ]
        except OSError as error:
            self._log.failed(str(error))
            return ()
        holders = {
            (grant.container, grant.device_ids): (grant.namespace, grant.pod)
            for grant in self._node.state.grants
            if nic_ids.are_nics(grant.resource)
        }
        name = nic_ids.names(self._node.state.topology)
        pods: dict[str, tuple[tuple[str, str], set[str]]] = {}
        for entry in entries:
            pod = holders.get((entry.container, entry.device_ids))
            if pod is not None:
                pods.setdefault(entry.uid, (pod, set()))[1].update(map(name, entry.device_ids))
        used: list[RdmaUse] = []
        for uid, (pod, nics) in sorted(pods.items()):
            try:
                used += self._keep(uid, pod, nics)
            except (OSError, Refused) as error:
                self._log.failed(f"RDMA limits of {'/'.join(pod)}: {error}")
        self._log_failures(used)
        return tuple(used)

    def _keep(self, uid: str, pod: tuple[str, str], nics: Iterable[str]) -> list[RdmaUse]:
        cgroups = self._cgroups
        assert cgroups is not None
        folder = cgroups.find(uid)
        if folder is None:
            return []
        limit = self._limit(self._requested(pod))
        if limit != NO_LIMIT:
            folder = cgroups.pod(uid)
        elif not exists(folder / "rdma.max"):
            return []
        known = parse(cgroups.files.read(folder / "rdma.max"))
        present = sorted(set(nics) & known.keys())  # a removed NIC has no line
        for nic in present:
            if limit not in (NO_LIMIT, known[nic]):
                write(cgroups.files, folder, nic, limit)
                log.info("%s/%s: restored %s", *pod, max_line(nic, limit))
                known[nic] = limit
        current = parse(cgroups.files.read(folder / "rdma.current"))
        events = folder / "rdma.events"  # since Linux 7.2
        failed = failures(cgroups.files.read(events)) if exists(events) else {}
        return [
            RdmaUse(*pod, nic, current.get(nic, NO_LIMIT), known[nic], failed.get(nic, -1))
            for nic in present
        ]

    def _log_failures(self, used: Iterable[RdmaUse]) -> None:
        now = {(use.namespace, use.pod, use.card): use for use in used}
        for key, use in now.items():
            if use.failures > self._failed.get(key, 0):
                log.warning("%s/%s: the kernel refused RDMA resources at the limit on %s", *key)
        self._failed = {key: use.failures for key, use in now.items()}
