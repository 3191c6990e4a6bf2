"""One agreed membership, as the coordinator says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROPOSED, LIVE, NONE_YET = "proposed", "live", "waiting"


@dataclass(frozen=True)
class MemberSeen:
    member: int
    incarnation: int
    rank: int
    address: str
    node: str
    local: int  # index among the members on its node


@dataclass(frozen=True)
class Generation:
    """Ranks and the leader are final only if `state` is live."""

    number: int
    state: str
    members: tuple[MemberSeen, ...] = ()
    leader_address: str = ""
    leader_port: int = 0
    reason: str = ""
    stop_after_step: int | None = None
    leaving: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()  # until their replica is whole again
    replica: int = 0  # members that hold the state together; 0: not known
    acknowledged: bool = False
    over: bool = False
    over_reason: str = ""
    check_s: float = 0.0  # members check their pairs before they start, for at most so long; 0: no

    @property
    def size(self) -> int:
        return len(self.members)

    def find(self, member: int, incarnation: int) -> MemberSeen | None:
        for each in self.members:
            if (each.member, each.incarnation) == (member, incarnation):
                return each
        return None

    def lost(self, newer: Generation) -> list[int]:
        """Returns the members of this one whose processes are gone in a newer one, without a plan."""
        if newer.number <= self.number:
            return []
        return [
            each.member
            for each in self.members
            if newer.find(each.member, each.incarnation) is None
            and each.member not in newer.leaving | newer.waiting
        ]


NOTHING = Generation(0, NONE_YET)


def parse(answer: Mapping[str, Any]) -> Generation:
    """Parses an answer of /v1/generation. Raises ValueError for anything else."""
    try:
        leader = answer.get("leader") or {}
        return Generation(
            number=int(answer["generation"]),
            state=str(answer["state"]),
            members=tuple(map(_member, answer.get("members") or ())),
            leader_address=str(leader.get("address", "")),
            leader_port=int(leader.get("port", 0)),
            reason=str(answer.get("reason", "")),
            stop_after_step=answer.get("stop_after_step"),
            leaving=frozenset(map(int, answer.get("leaving") or ())),
            waiting=frozenset(map(int, answer.get("waiting") or ())),
            replica=int(answer.get("replica") or 0),
            acknowledged=bool(answer.get("acknowledged")),
            over=bool(answer.get("over")),
            over_reason=str(answer.get("over_reason", "")),
            check_s=float(answer.get("check_s") or 0.0),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the coordinator's answer is not a generation: {error!r}") from error


def _member(each: Mapping[str, Any]) -> MemberSeen:
    return MemberSeen(
        member=int(each["member"]),
        incarnation=int(each.get("incarnation", 0)),
        rank=int(each["rank"]),
        address=str(each["address"]),
        node=str(each.get("node", "")),
        local=int(each.get("local", 0)),
    )
