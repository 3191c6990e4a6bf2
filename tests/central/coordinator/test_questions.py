"""A member asks who is still there: polls of the others are answered at once."""

import asyncio

from protos.common.http_server import HttpAnswer
from tests.central.coordinator.test_bad_requests import HERS, ME, Served, serve


def test_a_question_answers_the_polls_of_the_others() -> None:
    async def poll(served: Served, who: dict[str, int]) -> HttpAnswer:
        named = {name: str(value) for name, value in who.items()}
        return await served.app.generation({"after": "1", "wait": "10", **named})

    async def story(served: Served) -> None:
        mine, hers = (asyncio.ensure_future(poll(served, who)) for who in (ME, HERS))
        await asyncio.sleep(0)
        assert not mine.done()
        await served.ok("/v1/ask", {**ME, "generation": 1})
        assert (await hers).status == 200
        assert not mine.done(), "it has just been heard"
        mine.cancel()

    serve(story)
