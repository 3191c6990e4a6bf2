"""Known tokens are answered from memory, and unknown ones are bounded."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from central.model.identity import AuthFailure, Identity, Role
from central.server.grpc import token_cache
from central.server.grpc.rates import Rate
from central.server.grpc.token_cache import BUSY, CacheTimes, LaneLimits, TokenCache
from tests.central.kube.transport.test_token_review import jwt
from tests.fakes.still_clock import StillClock

AGENT = Identity("agent", "n1")
REJECTED = AuthFailure("rejected")
WIDE = LaneLimits(2, 100, Rate(1e6, 1_000_000), Rate(1e6, 1_000_000))


class Reviewer:
    """Blocks while gate is closed. Tokens that begin with "good" are an agent's."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.away = False

    def implausible(self, token: str, role: Role) -> str:
        return "nonsense" if token.startswith("nonsense") else ""

    def review(self, token: str, role: Role) -> Identity | AuthFailure:
        self.asked.append(token)
        self.gate.wait(20)
        if self.away:
            return AuthFailure("away", transient=True)
        if token.startswith("short"):
            return Identity("agent", "n1", expires=time.time() + 0.2)
        return AGENT if token.startswith("good") else REJECTED


def cache(
    reviewer: Reviewer, times: CacheTimes | None = None, lane: LaneLimits = WIDE
) -> TokenCache:
    return TokenCache(reviewer, times, {"agent": lane, "user": lane, "coordinator": lane})


def ran(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    """Of the cache, so that nothing depends on how busy the machine is."""
    found = StillClock(time)
    monkeypatch.setattr(token_cache, "time", found)
    return found


async def reviewed(tokens: TokenCache) -> None:
    """No review is under way any more."""
    while tokens._asked:
        await asyncio.sleep(0.01)


def test_a_token_is_reviewed_once() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer)

    async def story() -> None:
        assert await tokens.identify("good", "agent", "p") == AGENT
        for _ in range(10):
            assert await tokens.identify("good", "agent", "p") == AGENT
            assert await tokens.identify("bad", "agent", "p") == REJECTED
        assert reviewer.asked == ["good", "bad"]
        assert "good" not in repr(vars(tokens))

    ran(story())


def test_callers_with_the_same_token_share_a_review() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer)
    reviewer.gate.clear()

    async def story() -> None:
        asked = [asyncio.create_task(tokens.identify("good", "agent", "p")) for _ in range(50)]
        await asyncio.sleep(0.05)
        reviewer.gate.set()
        assert await asyncio.gather(*asked) == [AGENT] * 50
        assert reviewer.asked == ["good"]

    ran(story())


def test_a_known_token_waits_for_nothing() -> None:
    """Neither behind a flood of unknown ones, nor for its own review, nor for an API server that is away."""
    reviewer = Reviewer()
    tokens = cache(reviewer, CacheTimes(review_again=0.0, retry=0.0))

    async def story() -> None:
        await tokens.identify("good", "agent", "p")
        reviewer.gate.clear()
        flood = [
            asyncio.create_task(tokens.identify(f"bad{n}", "agent", f"p{n}")) for n in range(90)
        ]
        await asyncio.sleep(0.05)
        for _ in range(100):
            assert await asyncio.wait_for(tokens.identify("good", "agent", "p"), 1.0) == AGENT
        assert reviewer.asked.count("good") == 2  # one review at a time, in a lane of its own
        reviewer.gate.set()
        await asyncio.gather(*flood)
        reviewer.away = True
        for _ in range(100):
            assert await tokens.identify("good", "agent", "p") == AGENT

    ran(story())


def test_a_revoked_token_is_unknown_after_its_next_review() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer, CacheTimes(review_again=0.0))

    async def story() -> None:
        await tokens.identify("good", "agent", "p")
        known = reviewer.review
        reviewer.review = lambda token, role: REJECTED  # type: ignore[method-assign]
        while await tokens.identify("good", "agent", "p") == AGENT:
            await asyncio.sleep(0.01)
        assert await tokens.identify("good", "agent", "p") == REJECTED
        reviewer.review = known  # type: ignore[method-assign]

    ran(story())


def test_nobody_stays_known_without_end(clock: StillClock) -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer, CacheTimes(review_again=0.0, known=0.3, retry=0.0))

    async def story() -> None:
        await tokens.identify("good", "agent", "p")
        reviewer.away = True
        assert await tokens.identify("good", "agent", "p") == AGENT
        await reviewed(tokens)
        clock.sleep(0.4)
        answer = await tokens.identify("good", "agent", "p")
        assert answer == AuthFailure("away", transient=True)

    ran(story())


def test_a_token_is_known_until_it_expires() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer)

    async def story() -> None:
        await tokens.identify("short", "agent", "p")
        await asyncio.sleep(0.3)
        await tokens.identify("short", "agent", "p")
        assert reviewer.asked == ["short", "short"]

    ran(story())


def test_nonsense_is_no_request() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer)

    async def story() -> None:
        for number in range(1000):
            answer = await tokens.identify(f"nonsense{number}", "agent", "p")
            assert answer == AuthFailure("nonsense")
        assert reviewer.asked == []

    ran(story())


def test_a_flood_asks_the_api_server_little_and_leaves_room_for_others() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer, lane=LaneLimits(2, 100, Rate(0.001, 5), Rate(0.001, 50)))

    async def story() -> None:
        answers = await asyncio.gather(
            *(tokens.identify(f"bad{n}", "agent", f"p{n % 8}") for n in range(10_000))
        )
        assert answers.count(BUSY) == 10_000 - 8 * 5
        assert len(reviewer.asked) == 8 * 5
        assert await tokens.identify("good", "agent", "another peer") == AGENT

    ran(story())


@pytest.mark.parametrize("bad", [lambda n: jwt(sub="mallory", n=n), lambda n: f"bad{n}"])
def test_bad_tokens_of_one_account_leave_others_behind_a_proxy_their_part(
    bad: Callable[[int], str],
) -> None:
    """Behind a proxy or a port-forward all users of the console are one peer."""
    reviewer = Reviewer()
    tokens = TokenCache(reviewer)

    async def story() -> None:
        flood = (tokens.identify(bad(n), "user", "proxy") for n in range(1_000))
        answers = await asyncio.gather(*flood)
        assert BUSY in answers
        for number in range(8):  # new users, a token each
            assert await tokens.identify(jwt(sub=f"user{number}"), "user", "proxy") == REJECTED
        assert await tokens.identify(bad(1_000), "user", "proxy") == BUSY

    ran(story())


def test_invented_accounts_leave_those_that_were_accepted_their_part() -> None:
    class Knows(Reviewer):
        def review(self, token: str, role: Role) -> Identity | AuthFailure:
            good = token in {jwt(sub="jane", n=n) for n in range(50)}
            return AGENT if good else super().review(token, role)

    tokens = TokenCache(Knows())

    async def story() -> None:
        assert await tokens.identify(jwt(sub="jane", n=0), "user", "proxy") == AGENT
        flood = (tokens.identify(jwt(sub=f"m{n}"), "user", "proxy") for n in range(1_000))
        assert BUSY in await asyncio.gather(*flood)
        assert await tokens.identify(jwt(sub="bob"), "user", "proxy") == BUSY
        assert await tokens.identify(jwt(sub="jane", n=1), "user", "proxy") == AGENT
        answers = [
            await tokens.identify(jwt(sub="jane", n=n), "user", "proxy") for n in range(2, 50)
        ]
        assert BUSY in answers, "and its part is bounded, too"

    ran(story())


def test_an_agent_whose_token_rotates_waits_behind_no_flood() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer, lane=LaneLimits(1, 100, Rate(0.001, 5), Rate(0.001, 5)))

    async def story() -> None:
        await asyncio.gather(*(tokens.identify(f"bad{n}", "agent", "p") for n in range(10)))
        assert await tokens.identify("good1", "agent", "p") == BUSY
        assert await tokens.identify("good2", "agent", "p", vouched=True) == AGENT
        # And that lane is bounded, too.
        answers = [
            await tokens.identify(f"bad again {n}", "agent", "p", vouched=True) for n in range(10)
        ]
        assert answers.count(BUSY) == 7
        others = [
            await tokens.identify(f"good {n}", "agent", "another peer", vouched=True)
            for n in range(4)
        ]
        assert others == [AGENT] * 4, "each peer has places of its own"

    ran(story())


def test_memory_is_bounded() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer, lane=LaneLimits(8, 1000, Rate(1e9, 10**9), Rate(1e9, 10**9)))

    async def story() -> None:
        await tokens.identify("good", "agent", "p")
        for start in range(0, 12_000, 500):
            await asyncio.gather(
                *(tokens.identify(f"bad{start + n}", "agent", f"{n}") for n in range(500))
            )
        assert len(tokens._rejected) == 10_000
        reviewer.asked.clear()
        assert await tokens.identify("good", "agent", "p") == AGENT
        assert reviewer.asked == []

    ran(story())


def test_reviews_that_wait_are_bounded_and_leave_their_place() -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer, lane=LaneLimits(1, 3, Rate(1e6, 10**6), Rate(1e6, 10**6)))

    async def story() -> None:
        for turn in range(5):
            reviewer.gate.clear()
            asked = [
                asyncio.create_task(tokens.identify(f"bad{turn}-{n}", "agent", "p"))
                for n in range(5)
            ]
            await asyncio.sleep(0.02)
            reviewer.gate.set()
            answers = await asyncio.gather(*asked)
            assert answers == [REJECTED] * 3 + [BUSY] * 2
            await asyncio.sleep(0.02)
        assert await tokens.identify("good", "agent", "p") == AGENT

    ran(story())


def test_a_review_that_finds_no_answer_is_repeated_after_a_while(clock: StillClock) -> None:
    """Not with each call: the API server has other troubles. And then for as long as it takes."""
    reviewer = Reviewer()
    tokens = cache(reviewer, CacheTimes(review_again=0.0, known=600.0, retry=0.2))

    async def story() -> None:
        await tokens.identify("good", "agent", "p")
        reviewer.away = True
        for reviews in (2, 3, 4):
            for _ in range(5):
                assert await tokens.identify("good", "agent", "p") == AGENT
                await reviewed(tokens)
            assert len(reviewer.asked) == reviews
            clock.sleep(0.21)

    ran(story())


def test_a_rejected_token_is_asked_about_again_after_a_while(clock: StillClock) -> None:
    reviewer = Reviewer()
    tokens = cache(reviewer, CacheTimes(rejected=0.1))

    async def story() -> None:
        for reviews in (1, 2, 3):
            for _ in range(5):
                assert await tokens.identify("bad", "agent", "p") == REJECTED
            assert len(reviewer.asked) == reviews
            clock.sleep(0.11)

    ran(story())


def test_a_rejection_that_is_repeated_stays_among_the_newest(
    monkeypatch: Any, clock: StillClock
) -> None:
    monkeypatch.setattr(token_cache, "REJECTED_MOST", 2)
    reviewer = Reviewer()
    tokens = cache(reviewer, CacheTimes(rejected=0.3))

    async def story() -> None:
        await tokens.identify("bad1", "agent", "p")
        clock.sleep(0.31)
        for token in ("bad2", "bad1", "bad3", "bad1"):
            await tokens.identify(token, "agent", "p")
        assert reviewer.asked == ["bad1", "bad2", "bad1", "bad3"]

    ran(story())


def test_what_is_known_of_a_role_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(token_cache, "KNOWN_MOST", 3)
    reviewer = Reviewer()
    tokens = cache(reviewer)

    async def story() -> None:
        for token in ("good1", "good2", "good3", "good4", "good2", "good4"):
            await tokens.identify(token, "agent", "p")
        await tokens.identify("good1", "agent", "p")
        assert reviewer.asked == ["good1", "good2", "good3", "good4", "good1"]
        await tokens.identify("good4", "user", "p")
        assert len(reviewer.asked) == 6, "each role has tokens of its own"

    ran(story())
