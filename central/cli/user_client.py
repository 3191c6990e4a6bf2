"""A client of the API server with the user's own kubeconfig, for commands that read."""

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager

from central.cli import exit_codes
from central.cli.exit_codes import CannotDo
from central.kube.transport.configuration import KubeconfigError, load_user_config
from central.kube.transport.http_client import Client, Unreachable


@contextmanager
def reachable() -> Iterator[None]:
    """Turns Unreachable into CannotDo."""
    try:
        yield
    except Unreachable as error:
        why = f"the API server does not answer: {error}"
        raise CannotDo(why, exit_codes.UNREACHABLE) from error


@contextmanager
def user_client(args: argparse.Namespace) -> Iterator[tuple[Client, str]]:
    """The client, and the namespace of the context. Raises CannotDo, also in place of Unreachable."""
    try:
        config, namespace = load_user_config(args.kubeconfig, args.context)
    except KubeconfigError as error:
        raise CannotDo(error) from error
    with closing(Client(config)) as client, reachable():
        yield client, namespace
