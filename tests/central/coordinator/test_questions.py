"""A member asks who is still there: polls of the others are answered at once."""

import asyncio

from protos.common.http_server import HttpRequest
from tests.central.coordinator.test_bad_requests import HERS, ME, Served, serve


def test_a_question_answers_the_polls_of_the_others() -> None:
    async def story(served: Served) -> None:
        query = {"after": "1", "wait": "10"}
        polls = [
            asyncio.ensure_future(
                served.app(
                    HttpRequest(
                        "GET", "/v1/generation", query | {k: str(v) for k, v in who.items()}
                    )
                )
            )
            for who in (ME, HERS)
        ]
        await asyncio.sleep(0)
        assert not any(each.done() for each in polls)
        await served.ok("/v1/ask", {**ME, "generation": 1})
        answer = await polls[1]
        assert answer.status == 200
        assert not polls[0].done(), "it has just been heard"
        polls[0].cancel()

    serve(story)
