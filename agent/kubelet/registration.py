"""Serves the plugin's socket, registers with the kubelet, and starts anew when the kubelet does: a
starting kubelet empties the directory of sockets and forgets who was registered."""

import contextlib
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from agent.backoff import Backoff, StateLogger
from agent.kubelet.directory_watch import DirectoryWatch
from agent.kubelet.latency import Latency
from agent.kubelet.plugin import OPTIONS, DevicePlugin
from agent.node import AgentNode
from agent.sockets import CHANNEL, PATH_BYTES, details
from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc

log = logging.getLogger(__name__)

VERSION = "v1beta1"
LOOK_EVERY_S = 0.5  # where the kernel does not tell of the directory
WATCHED_S = 5.0  # where it does: what it could have missed
REGISTER_S = 15.0  # a newer kubelet dials us, for up to 10 s, before it answers
TRUTH_S = 3.0  # how long pod-resources is waited for; then the checkpoint is believed
DEAF_S = 10.0  # without a ListAndWatch for so long: the kubelet has dropped us
EMPTY_S = 1.0  # the kubelet has been told that there is no device
THREADS = 32  # a container that starts may wait in PreStartContainer; nobody waits for a thread

Identity = tuple[int, int, int] | None


class KubeletUnavailable(Exception):
    """Can't serve the kubelet now; the message is a sentence. It may heal."""


class PluginRegistration:
    """For one plugin, in a thread of its own: the trouble of one resource is not another's."""

    def __init__(self, folder: DirectoryWatch, node: AgentNode, plugin: DevicePlugin) -> None:
        self._folder, self.plugins = folder, folder.path
        self.socket = self.plugins / "kubelet.sock"
        self._node, self._plugin, self._resource = node, plugin, plugin.resource
        self.own = self.plugins / self._resource.endpoint
        self._log = StateLogger(log)
        self.registered = False

    @property
    def resource(self) -> str:
        return self._resource.name

    @property
    def took(self) -> Latency:
        """To answer Allocate."""
        return self._plugin.took

    @property
    def has_devices(self) -> bool:
        """Whether there is anything to register."""
        return bool(self._resource.devices(self._node.state))

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            # A resource that no device stands behind would only confuse.
            if not self.has_devices:
                self._node.wait(
                    lambda state: stop.is_set() or bool(self._resource.devices(state)), 60
                )
                continue
            # Nor may a GPU be given before it is known who has which.
            self._node.wait(lambda state: state.grants_known or stop.is_set(), TRUTH_S)
            try:
                if self._serve_once(stop):
                    backoff.reset()
            except KubeletUnavailable as trouble:
                self._log.failed(f"not serving the kubelet: {trouble}")
                stop.wait(backoff.pause_s())

    def _serve_once(self, stop: threading.Event) -> bool:
        """Until the kubelet restarts, or our socket or the last device goes, or stop; True then."""
        self._check_directory()
        with contextlib.suppress(FileNotFoundError):
            self.own.unlink()
        workers = ThreadPoolExecutor(THREADS, thread_name_prefix="plugin")
        server = grpc.server(workers)
        rpc.add_DevicePluginServicer_to_server(self._plugin, server)
        try:
            try:
                server.add_insecure_port(f"unix:{self.own}")
            except RuntimeError as error:
                raise KubeletUnavailable(
                    f"can't listen at {self.own}: {_why(self.own) or error}"
                ) from None
            server.start()
            ours, kubelet = identity(self.own), identity(self.socket)
            self._register()
            self._log.ok(f"registered {self._resource.name} with the kubelet at {self.socket}")
            self.registered = True
            self._watch(stop, ours, kubelet)
            return True
        finally:
            self.registered = False
            self._plugin.closing.set()
            self._node.wake()
            server.stop(grace=0.2).wait(timeout=1.0)
            workers.shutdown(wait=False)
            self._plugin.closing.clear()

    def _check_directory(self) -> None:
        length = len(str(self.own).encode())
        if length > PATH_BYTES:
            raise KubeletUnavailable(
                f"{self.own} has {length} bytes, and a unix socket's path may have "
                f"{PATH_BYTES}: choose a shorter --kubelet-dir"
            )
        try:
            if not self.plugins.is_dir():
                raise KubeletUnavailable(
                    f"{self.plugins} is not there: mount the kubelet's directory, or set --kubelet-dir"
                )
            allowed = os.access(self.plugins, os.W_OK | os.X_OK)
            there = allowed and self.socket.exists()
        except PermissionError:
            allowed = there = False
        if not allowed:
            raise KubeletUnavailable(
                f"no permission to write in {self.plugins}: the agent must run as root"
            )
        if not there:
            raise KubeletUnavailable(f"{self.socket} is not there: the kubelet does not run")
        if not os.access(self.socket, os.R_OK | os.W_OK):
            raise KubeletUnavailable(
                f"no permission to connect to {self.socket}: the agent must run as root"
            )

    def _register(self) -> None:
        request = pb.RegisterRequest(
            version=VERSION,
            endpoint=self._resource.endpoint,
            resource_name=self._resource.name,
            options=OPTIONS,
        )
        with grpc.insecure_channel(f"unix:{self.socket}", options=CHANNEL) as channel:
            try:
                rpc.RegistrationStub(channel).Register(request, timeout=REGISTER_S)
            except grpc.RpcError as error:
                raise KubeletUnavailable(
                    f"{self.socket} did not take the registration: {details(error)}"
                ) from None

    def _watch(self, stop: threading.Event, ours: Identity, kubelet: Identity) -> None:
        heard, moves = time.monotonic(), -1
        offered = time.monotonic()
        while not self._idle(stop, moves):
            moves = self._folder.moves
            if self.has_devices:
                offered = time.monotonic()
            elif time.monotonic() - offered > EMPTY_S:
                self._log.ok(f"there is no {self._resource.name} any more")
                return
            if identity(self.socket) != kubelet:
                self._log.ok("the kubelet has restarted")
                return
            if identity(self.own) != ours:
                self._log.ok(f"{self.own} was removed")
                return
            if self._plugin.streams:
                heard = time.monotonic()
            elif time.monotonic() - heard > DEAF_S:
                self._log.failed(
                    f"the kubelet does not listen to us any more; does another plugin serve "
                    f"{self._resource.name}?"
                )
                return

    def _idle(self, stop: threading.Event, moves: int) -> bool:
        """Until something came or went since then, or it is time to look again; whether to stop."""
        watched = self._folder.watching and self._plugin.streams
        self._node.wait(
            lambda _: stop.is_set() or self._folder.moves != moves,
            WATCHED_S if watched else LOOK_EVERY_S,
        )
        return stop.is_set()


def _why(path: Path) -> str:
    """gRPC does not say why it could not listen: the kernel does, asked in the same way."""
    with socket.socket(socket.AF_UNIX) as own:
        try:
            own.bind(str(path))
        except OSError as error:
            return error.strerror or str(error)
    path.unlink(missing_ok=True)
    return ""


def identity(path: Path) -> Identity:
    """Of the file itself: an inode's number alone may be used again at once."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
