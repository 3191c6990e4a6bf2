"""Access to the scheduler from a user's machine: at the address that the user names, or else through the API server
with the user's kubeconfig. kubectl forwards a port, the ConfigMap lockstep-ca has the certificate, and the API server
issues a token for the scheduler's own ServiceAccount. The user's own credentials stay with the API server.

Design: docs/design/command-line.md
"""

import argparse
import atexit
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import orjson

from central.server import argtypes
from central.server.grpc import query_client
from central.server.grpc.query_client import CannotAsk, SchedulerAddress
from protos.common.child_process import start_bound, wait_or_kill
from protos.names import CA_CONFIG_MAP, CENTRAL_ACCOUNT, NAMESPACE

if TYPE_CHECKING:
    from central.kube.transport.http_client import StatusError

NAME = CENTRAL_ACCOUNT  # of the ServiceAccount, and of the Service
TOKEN_S = 3600  # the API server grants 600 s at least
FORWARD_S = 15.0
MAX_OUTPUT = 65_536  # bytes of kubectl's that are read
_children: list["subprocess.Popen[bytes]"] = []
_starting = threading.Lock()
_FORWARDED = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d{1,5}) ->")


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_scheduler(parser)


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    about = "kubeconfig file"
    argtypes.add_flag(parser, "--kubeconfig FILE", about, default=None, shown="as for kubectl")
    about = "context of the kubeconfig"
    argtypes.add_flag(parser, "--context NAME", about, default=None, shown="its current one")


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    about, env = "namespace of the scheduler, where --server does not name it", "LOCKSTEP_NAMESPACE"
    argtypes.add_flag(parser, "--scheduler-namespace NAME", about, env=env, default=NAMESPACE)
    query_client.add_flags(parser)


def scheduler_address(args: argparse.Namespace) -> SchedulerAddress:
    """The address that the flags or the environment name; without one, that of a port which is forwarded until the
    command ends. For the main thread. Raises CannotAsk."""
    if query_client.is_named(args):
        return query_client.scheduler_address(args)
    # kubectl runs in a session of its own, so Ctrl-C ends this process first, which then ends kubectl. So does SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return _forwarded(args.kubeconfig, args.context, args.scheduler_namespace)


def renewed(args: argparse.Namespace, error: CannotAsk) -> SchedulerAddress:
    """The address after an error: kubectl forwards to one pod and ends with it, and a token lasts an hour. Raises
    CannotAsk; the same error, if nothing can be renewed."""
    if query_client.is_named(args) or error.kind not in (
        query_client.UNREACHABLE,
        query_client.REFUSED,
    ):
        raise error
    _end_all()
    return _forwarded(args.kubeconfig, args.context, args.scheduler_namespace)


def _forwarded(kubeconfig: str | None, context: str | None, namespace: str) -> SchedulerAddress:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise CannotAsk(
            "kubectl, which forwards the scheduler's port, is not on the PATH; install it, or name the "
            "scheduler with --server, --ca-file and --token-file"
        )
    certificate, token = _credentials(kubeconfig, context, namespace)
    command = [kubectl, f"--namespace={namespace}"]
    if kubeconfig:
        command.append(f"--kubeconfig={kubeconfig}")
    if context:
        command.append(f"--context={context}")
    port = _forward(command)
    return SchedulerAddress(
        f"127.0.0.1:{port}", "", "", f"{NAME}.{namespace}.svc", certificate=certificate, token=token
    )


def _credentials(kubeconfig: str | None, context: str | None, namespace: str) -> tuple[bytes, str]:
    """The scheduler's certificate authority in PEM, and a token that the scheduler accepts."""
    from central.kube.transport.configuration import KubeconfigError, load_user_config
    from central.kube.transport.http_client import Client, StatusError, Unreachable

    try:
        config, _ = load_user_config(kubeconfig, context)
    except KubeconfigError as error:
        why = f"{error}; or name the scheduler with --server, --ca-file and --token-file"
        raise CannotAsk(why) from error
    client = Client(config)
    path = f"/api/v1/namespaces/{namespace}"
    what = f"the ConfigMap {namespace}/{CA_CONFIG_MAP}"
    try:
        certificate = client.get(f"{path}/configmaps/{CA_CONFIG_MAP}")["data"]["ca.crt"].encode()
        what = f"a token of the ServiceAccount {namespace}/{NAME}"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_S},
        }
        reply = client.request(
            "POST", f"{path}/serviceaccounts/{NAME}/token", orjson.dumps(request)
        )
        return certificate, str(reply.accepted().json()["status"]["token"])
    except StatusError as error:
        raise _refused(error, what, namespace) from error
    except Unreachable as error:
        raise CannotAsk(str(error), query_client.UNREACHABLE) from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CannotAsk(f"{what}: the API server's answer has no such field: {error}") from error
    finally:
        client.close()


def _refused(error: "StatusError", what: str, namespace: str) -> CannotAsk:
    if error.status == 404:
        return CannotAsk(
            f"{what} does not exist: no scheduler is installed in the namespace {namespace}; "
            "see --scheduler-namespace",
            query_client.NOT_FOUND,
        )
    if error.status in (401, 403):
        return CannotAsk(
            f"you may not read {what} ({error}); `lockstep job view` and `lockstep group view` show why a job is "
            "pending with your own rights, or name the scheduler with --server, --ca-file and --token-file",
            query_client.REFUSED,
        )
    return CannotAsk(f"{what}: {error}", query_client.UNREACHABLE)


def _forward(kubectl: list[str]) -> int:
    """The local port that kubectl forwards to the scheduler until this process ends."""
    argv = [*kubectl, "port-forward", "--address=127.0.0.1", f"service/{NAME}", ":9443"]
    with _starting:
        child = start_bound(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        _children.append(child)
    said = _output_until_forwarded(child)
    threading.Thread(target=_drain, args=(child,), daemon=True).start()
    if found := _FORWARDED.search(said):
        return int(found[1])
    text = " ".join(said.decode(errors="replace").split()) or f"it said nothing for {FORWARD_S:g} s"
    raise CannotAsk(f"kubectl port-forward service/{NAME}: {text[:500]}", query_client.UNREACHABLE)


def _output_until_forwarded(child: "subprocess.Popen[bytes]") -> bytes:
    assert child.stdout is not None
    said, deadline = b"", time.monotonic() + FORWARD_S
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while not _FORWARDED.search(said) and len(said) < MAX_OUTPUT:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                break
            part = os.read(child.stdout.fileno(), 4096)
            if not part:
                break
            said += part
    return said


def _drain(child: "subprocess.Popen[bytes]") -> None:
    """Reads kubectl's output: it writes a line for each connection, and blocks while they are not read."""
    assert child.stdout is not None
    with child.stdout as output:
        while os.read(output.fileno(), 4096):
            pass


def _end_all() -> None:
    while _children:
        child = _children.pop()
        child.terminate()
        wait_or_kill(child, 2.0)


@atexit.register
def _end_for_ever() -> None:
    """A thread that renews starts no other kubectl meanwhile, since the lock stays taken."""
    _starting.acquire()
    _end_all()
