"""Tokens -> identities by TokenReview, kept for a minute by the token's hash."""

from central.identity import Identity, Refusal
from central.kube.client import Client


class Reviewer:
    def __init__(self, client: Client, namespace: str, keep_s: float = 60.0) -> None:
        raise NotImplementedError

    def agent(self, token: str) -> Identity | Refusal:
        """An agent of ours, with the node that its pod runs on."""
        raise NotImplementedError

    def user(self, token: str) -> Identity | Refusal:
        """Anybody whom the API server knows."""
        raise NotImplementedError
