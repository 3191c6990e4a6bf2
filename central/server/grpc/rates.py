"""Rates of a peer, and of all peers together. Pure: the time is an argument."""

from collections import OrderedDict
from dataclasses import dataclass, field

PEERS_MOST = 4096


@dataclass(frozen=True, slots=True)
class Rate:
    per_s: float
    burst: int


@dataclass(slots=True)
class Bucket:
    """A token bucket."""

    rate: Rate
    left: float = field(init=False)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.left = float(self.rate.burst)

    def take(self, now: float) -> bool:
        """Takes one from the bucket. Returns whether it is within the rate."""
        self.left = min(self.rate.burst, self.left + max(0.0, now - self.at) * self.rate.per_s)
        self.at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


@dataclass(slots=True)
class PeerRates:
    """One bucket per peer and one for all. A peer above its own rate takes nothing from the others."""

    per_peer: Rate
    in_all: Rate
    _all: Bucket = field(init=False)
    _peers: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._all = Bucket(self.in_all)

    def take(self, peer: str, now: float) -> bool:
        bucket = self._peers.get(peer)
        if bucket is None:
            if len(self._peers) >= PEERS_MOST:
                self._peers.popitem(last=False)
            bucket = self._peers[peer] = Bucket(self.per_peer, now)
        self._peers.move_to_end(peer)
        return bucket.take(now) and self._all.take(now)
