"""The user that a token belongs to: known tokens from memory, unknown ones from the API server, in lanes of their own.

A known token is answered at once, and reviewed again once a minute in a lane that only known tokens use. While the
API server cannot be asked, it stays known for ten minutes. Unknown tokens are bounded per peer and in all, and a
rejected one is remembered for a while: a flood of them delays no known caller and asks the API server little. Behind a
proxy all users are one peer, so tokens of users are bounded by the account that they name, too: the bad tokens of one
account leave the others their part. Accounts of which a token was accepted have a part apart from invented names.

    tokens = TokenCache(reviewer)
    answer = await tokens.identify(token, "agent", peer, vouched=False)     # in one event loop
"""

import asyncio
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from central.kube.transport import token_claims
from central.model.identity import AuthFailure, Identity, Role, TokenReview
from central.server.grpc.rates import PeerRates, Rate

KNOWN_MOST = 20_000  # per role
REJECTED_MOST = 10_000
ACCOUNT_MOST = 256  # characters of an account's name that tell accounts apart


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Limits for unknown tokens of one role: reviews at the same time, and reviews per second with bursts."""

    threads: int
    waiting: int
    per_peer: Rate
    in_all: Rate
    per_account: Rate | None = (
        None  # as the token names it, which nobody has verified; None: not bounded
    )


@dataclass(frozen=True, slots=True)
class CacheTimes:
    """Seconds."""

    review_again: float = 60.0
    known: float = 600.0  # without an answer of the API server
    rejected: float = 10.0
    retry: float = 5.0  # a review of a known token that found no answer


LANES: dict[Role, LaneLimits] = {
    # After a restart of the scheduler all agents are unknown, and behind a NAT they may be one peer.
    "agent": LaneLimits(16, 5_000, Rate(50.0, 256), Rate(300.0, 5_000)),
    "user": LaneLimits(4, 64, Rate(5.0, 30), Rate(20.0, 60), per_account=Rate(1.0, 10)),
    # After a restart of the scheduler all coordinators are unknown.
    "coordinator": LaneLimits(4, 1_000, Rate(5.0, 64), Rate(50.0, 1_000)),
}
VOUCHED = Rate(0.2, 4)
UNBOUNDED = Rate(1e9, 10**9)
BUSY = AuthFailure("too many unknown tokens are being reviewed; try again later", busy=True)
TokenKey = tuple[Role, bytes]


@dataclass(slots=True)
class _Known:
    identity: Identity
    reviewed: float  # when the API server accepted it
    next_review: float
    renewing: bool = False


class _Lane:
    def __init__(self, limits: LaneLimits, name: str) -> None:
        self.limits = limits
        self.pool = ThreadPoolExecutor(limits.threads, thread_name_prefix=f"review-{name}")
        self.waiting = 0
        self._rates = PeerRates(limits.per_peer, limits.in_all)
        self._rates_of_accepted = PeerRates(limits.per_peer, limits.in_all)
        self._accounts = limits.per_account and PeerRates(limits.per_account, UNBOUNDED)
        self._accepted: dict[str, None] = {}  # accounts, the one accepted longest ago first

    def take(self, token: str, peer: str, now: float) -> bool:
        """Returns whether the token may be reviewed now. Tokens that name no account share the part of one."""
        account = _account(token)
        if self._accounts and not self._accounts.take(f"{peer} {account}", now):
            return False
        known = account in self._accepted
        return (self._rates_of_accepted if known else self._rates).take(peer, now)

    def accept(self, token: str) -> None:
        if self._accounts and (account := _account(token)):
            self._accepted.pop(account, None)
            _make_place(self._accepted, KNOWN_MOST)
            self._accepted[account] = None


class TokenCache:
    def __init__(
        self,
        reviewer: TokenReview,
        times: CacheTimes | None = None,
        lanes: dict[Role, LaneLimits] | None = None,
    ) -> None:
        self._reviewer = reviewer
        self._times = times or CacheTimes()
        self._known: dict[Role, dict[TokenKey, _Known]] = {role: {} for role in LANES}
        self._rejected: dict[TokenKey, tuple[float, AuthFailure]] = {}
        self._lanes = {role: _Lane(each, role) for role, each in (lanes or LANES).items()}
        self._renewals = ThreadPoolExecutor(8, thread_name_prefix="review-known")
        self._vouched = PeerRates(VOUCHED, LANES["agent"].in_all)
        self._asked: dict[TokenKey, asyncio.Task[Identity | AuthFailure]] = {}

    async def identify(
        self, token: str, role: Role, peer: str, *, vouched: bool = False
    ) -> Identity | AuthFailure:
        """vouched: the connection has shown a valid token of an agent before, as when tokens rotate. Its new
        token waits behind no unknown one."""
        key = (role, hashlib.sha256(token.encode(errors="replace")).digest())
        now = time.monotonic()
        if (known := self._fresh(key, now)) is not None:
            if now >= known.next_review and not known.renewing:
                known.renewing = True
                self._ask(key, token, self._renewals)
            return known.identity
        if (answer := self._refused(key, now)) is not None:
            return answer
        if (asked := self._asked.get(key)) is not None:
            return await asyncio.shield(asked)
        if why := self._reviewer.implausible(token, role):
            return AuthFailure(why)
        if vouched and self._vouched.take(peer, now):
            return await asyncio.shield(self._ask(key, token, self._renewals))
        return await self._review_unknown(key, token, peer, now)

    async def _review_unknown(
        self, key: TokenKey, token: str, peer: str, now: float
    ) -> Identity | AuthFailure:
        lane = self._lanes[key[0]]
        if lane.waiting >= lane.limits.waiting or not lane.take(token, peer, now):
            return BUSY
        lane.waiting += 1
        task = self._ask(key, token, lane.pool)
        task.add_done_callback(lambda _: self._left(lane))
        return await asyncio.shield(task)

    def _left(self, lane: _Lane) -> None:
        lane.waiting -= 1

    def _fresh(self, key: TokenKey, now: float) -> _Known | None:
        known = self._known[key[0]].get(key)
        if known is None:
            return None
        if now - known.reviewed < self._times.known and time.time() < known.identity.expires:
            return known
        del self._known[key[0]][key]
        return None

    def _refused(self, key: TokenKey, now: float) -> AuthFailure | None:
        until, answer = self._rejected.get(key, (0.0, BUSY))
        return answer if now < until else None

    def _ask(
        self, key: TokenKey, token: str, pool: ThreadPoolExecutor
    ) -> asyncio.Task[Identity | AuthFailure]:
        task = asyncio.get_running_loop().create_task(self._reviewed(key, token, pool))
        self._asked[key] = task
        task.add_done_callback(lambda _: self._asked.pop(key, None))
        return task

    async def _reviewed(
        self, key: TokenKey, token: str, pool: ThreadPoolExecutor
    ) -> Identity | AuthFailure:
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(pool, self._reviewer.review, token, key[0])
        now = time.monotonic()
        tokens = self._known[key[0]]
        if isinstance(answer, Identity):
            tokens.pop(key, None)
            _make_place(tokens, KNOWN_MOST)
            tokens[key] = _Known(answer, now, now + self._times.review_again)
            self._rejected.pop(key, None)
            self._lanes[key[0]].accept(token)
        elif not answer.transient:
            tokens.pop(key, None)
            self._rejected.pop(key, None)
            _make_place(self._rejected, REJECTED_MOST)
            self._rejected[key] = (now + self._times.rejected, answer)
        elif (known := tokens.get(key)) is not None:
            known.renewing, known.next_review = False, now + self._times.retry
        return answer


def _account(token: str) -> str:
    """Returns the account that the token names, which nothing has verified; empty if it names none."""
    claims = token_claims.claims(token)
    return f"{claims.issuer} {claims.subject}"[:ACCOUNT_MOST] if claims else ""


def _make_place(entries: dict[Any, Any], most: int) -> None:
    while len(entries) >= most:
        del entries[next(iter(entries))]
