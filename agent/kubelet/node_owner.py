"""The agent that owns the node, if there are several: it has the lock on a file beside the kubelet's socket.

The kubelet calls the plugin that registered last. An agent that is not the owner passes these calls on, because the
owner knows the allocations and the health of devices. When the owner ends, the kubelet has the other plugin already.

Design: docs/design/kubelet.md
"""

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from agent.backoff import StateLogger
from agent.bounded_files import text_or_empty
from agent.sockets import CHANNEL, details, refuses
from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc

log = logging.getLogger(__name__)

NAME = "lockstep-agent.lock"  # contains the owner's run and host name
PASSED_ON = ("lockstep-passed-on", "1")  # metadata of the calls
ANSWER_S = 25.0  # timeout; the kubelet's own for PreStartContainer is 30 s
REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)


class NodeOwner:
    def __init__(self, folder: Path, run: str) -> None:
        """run: of this agent, in the names of its sockets."""
        self._folder, self.run = folder, run
        self._file, self._handle = folder / NAME, -1
        self._channels: dict[str, grpc.Channel] = {}
        self._log = StateLogger(log)
        self.is_this = False

    def acquire(self) -> bool:
        """Returns whether this agent owns the node. Where no file can be locked, every agent does."""
        if self._handle >= 0:
            return True
        handle = -1
        try:
            handle = os.open(self._file, os.O_CREAT | os.O_RDWR, 0o644)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(handle, 0)
            os.write(handle, f"{self.run} {socket.gethostname()}".encode())
        except OSError as error:
            if handle >= 0:
                os.close(handle)
            if isinstance(error, BlockingIOError):
                self._log.failed(
                    f"another agent ({text_or_empty(self._file)}) owns this node; this one passes the "
                    "kubelet's calls on to it, and takes over when it ends"
                )
            else:
                self._log.failed(f"cannot lock {self._file}: {error.strerror}")
                self.is_this = True
            return self.is_this
        self._handle, self.is_this = handle, True
        self._log.ok("this agent owns the node")
        for path in self._folder.glob("lockstep-*.sock"):
            if self.run not in path.name and refuses(path):  # of an agent that has ended
                path.unlink(missing_ok=True)
        return True

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def _plugin(self, endpoint: str) -> rpc.DevicePluginStub | None:
        """The plugin of another agent, if that owns the node."""
        run = "" if self.is_this else text_or_empty(self._file).partition(" ")[0]
        paths = sorted(self._folder.glob(f"{endpoint}.{run}-*.sock")) if run.isalnum() else []
        if not paths:
            return None
        target = f"unix:{paths[-1]}"
        if target not in self._channels:
            self._channels[target] = grpc.insecure_channel(target, options=CHANNEL)
        return rpc.DevicePluginStub(self._channels[target])

    def ask(self, endpoint: str, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        """The owner's answer; None: this agent must answer."""
        if plugin := self._plugin(endpoint):
            try:
                return getattr(plugin, method)(request, timeout=ANSWER_S, metadata=(PASSED_ON,))
            except grpc.RpcError as error:
                code = getattr(error, "code", lambda: None)()
                if code in REFUSALS:
                    context.abort(code, details(error))
        return None

    def lists(
        self, endpoint: str, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        """The owner's lists, until it ends or the kubelet hangs up."""
        if plugin := self._plugin(endpoint):
            call = plugin.ListAndWatch(pb.Empty(), metadata=(PASSED_ON,))
            context.add_callback(call.cancel)  # type: ignore[arg-type]  # what it returns is not used
            try:
                yield from call
            except grpc.RpcError:
                return
            finally:
                call.cancel()


def is_passed_on(context: grpc.ServicerContext) -> bool:
    return PASSED_ON in context.invocation_metadata()
