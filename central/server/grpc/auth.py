"""Authentication and authorization of gRPC calls by the caller's bearer token. A refused caller gets the
reason. The log gets it at most once a minute, never with the token."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc
import grpc.aio

from central.model.identity import NO_TOKEN, AuthFailure, Identity, ReviewToken, bearer_token

log = logging.getLogger(__name__)

WARN_AGAIN_S = 60.0
_WARNINGS = 1000
_REVIEWS = 16  # concurrent token reviews

Context = grpc.aio.ServicerContext[Any, Any]


class Authenticator:
    def __init__(self, review: ReviewToken) -> None:
        self._review = review
        self._reviewers = ThreadPoolExecutor(_REVIEWS, thread_name_prefix="review")
        self._warned: dict[tuple[str, str, str], float] = {}

    async def admit_agent(self, node: str, context: Context) -> None:
        """Aborts the call unless it comes from the agent of that node."""
        answer = await self._identify(context)
        if isinstance(answer, Identity) and (not node or answer.node != node):
            answer = AuthFailure(
                f"the agent of node {answer.node} may not report for node {node!r:.80}"
                if answer.node
                else "only an agent may call this",
                authenticated=True,
            )
        if isinstance(answer, AuthFailure):
            await self._refuse(node, answer, context)

    async def admit_user(self, context: Context) -> None:
        """Aborts the call unless its token belongs to a user of the cluster."""
        answer = await self._identify(context)
        if isinstance(answer, AuthFailure):
            await self._refuse("", answer, context)

    async def _identify(self, context: Context) -> Identity | AuthFailure:
        token = bearer_token(context.invocation_metadata())
        if not token:
            return NO_TOKEN
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reviewers, self._review, token)

    async def _refuse(self, node: str, refusal: AuthFailure, context: Context) -> NoReturn:
        if refusal.transient:
            code = grpc.StatusCode.UNAVAILABLE
        elif refusal.authenticated:
            code = grpc.StatusCode.PERMISSION_DENIED
        else:
            code = grpc.StatusCode.UNAUTHENTICATED
        if self._may_warn((node[:253], context.peer().rpartition(":")[0], refusal.why)):
            log.warning("refused %s for node %.80r: %s", context.peer(), node, refusal.why)
        await context.abort(code, refusal.why)

    def _may_warn(self, about: tuple[str, str, str]) -> bool:
        """Once a minute for the same cause, and for at most 1,000 causes a minute."""
        now = time.monotonic()
        if len(self._warned) >= _WARNINGS:
            self._warned = {k: at for k, at in self._warned.items() if now - at < WARN_AGAIN_S}
        if (
            len(self._warned) >= _WARNINGS
            or now - self._warned.get(about, -WARN_AGAIN_S) < WARN_AGAIN_S
        ):
            return False
        self._warned[about] = now
        return True
