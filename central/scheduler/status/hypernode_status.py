"""The status of HyperNode objects: how many nodes each has in the network tree, and what is wrong with it.

Condition Usable is True if the HyperNode's nodes are a domain of the network, else False with the
reason. A node in two HyperNodes of a tier belongs to the first by name.

Design: docs/design/topology.md
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from central.model.decisions import SetStatus
from central.model.facts import HyperNodeSeen
from central.model.timestamps import stamp
from central.scheduler.inventory.hypernode_tree import HyperNodeTree
from central.scheduler.status.status_writes import Status, StatusWrites

KIND = "HyperNode"


@dataclass(slots=True, eq=False)
class HyperNodeStatuses:
    writes: StatusWrites = field(default_factory=partial(StatusWrites, KIND))
    # the problem, and since when it exists
    _since: dict[str, tuple[str, str]] = field(default_factory=dict)

    def changed(self, names: Iterable[str]) -> None:
        """The status of these HyperNodes may have changed, or they are gone."""
        self.writes.changed.update(dict.fromkeys(names))

    def decide(
        self, hypernodes: dict[str, HyperNodeSeen], tree: HyperNodeTree, now: float
    ) -> list[SetStatus]:
        decisions = []
        for name in list(self.writes.changed):
            seen = hypernodes.get(name)
            if seen is not None and not self.writes.ready(name, now):
                continue
            del self.writes.changed[name]
            if seen is None:
                self._since.pop(name, None)
                self.writes.forget(name)
                continue
            if not seen.uid:
                continue
            written = self.writes.write(name, seen.uid, self._status(seen, tree, now), now)
            decisions += [written] if written is not None else []
        return decisions

    def _status(self, seen: HyperNodeSeen, tree: HyperNodeTree, now: float) -> Status:
        why = tree.error_of(seen.name)
        before, since = self._since.get(seen.name, ("", ""))
        if not since or why != before:
            since = stamp(now)
        self._since[seen.name] = (why, since)
        condition = {
            "type": "Usable",
            "status": "False" if why else "True",
            "reason": "Trouble" if why else "InTheTree",
            "message": why,
            "lastTransitionTime": since,
        }
        return {"nodeCount": tree.sizes.get(seen.name, 0), "conditions": [condition]}
