"""Serves the plugin's socket and registers it with the kubelet, again after each restart of the
kubelet: a starting kubelet removes all sockets and forgets all registrations.

Each registration has a socket of a new name: a kubelet of 1.37 refuses one that it has, and never forgets it then.

Design: docs/design/kubelet.md
"""

import logging
import os
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import grpc

from agent.backoff import Backoff, StateLogger
from agent.kubelet.directory_watch import DirectoryWatch
from agent.kubelet.latency import Latency
from agent.kubelet.plugin import DevicePlugin
from agent.node import AgentNode
from agent.sockets import CHANNEL, PATH_BYTES, Identity, details, identity, refuses
from protos.stubs import deviceplugin_pb2 as pb
from protos.stubs import deviceplugin_pb2_grpc as rpc

log = logging.getLogger(__name__)

VERSION = "v1beta1"
POLL_S = 0.5  # between checks without inotify
WATCHED_S = 5.0  # between checks with inotify, for events that it missed
REGISTER_S = 15.0  # newer kubelets connect back, for up to 10 s, before they answer
GRANTS_S = 3.0  # wait for pod-resources; after it the checkpoint counts
SILENT_S = 10.0  # without a ListAndWatch call: the kubelet has dropped the plugin
EMPTY_S = 1.0  # time to send the empty device list before the socket closes
SWITCH_S = 0.1  # from the end of ListAndWatch until the kubelet calls the plugin of another agent
REFUSED_S = 60.0  # a kubelet that is there and still lacks the plugin then: it will not take it
SERVERS = 8  # sockets that may be removed, one after another, before all calls end and the plugin begins again
THREADS = 32  # calls of PreStartContainer can take long and must not block the others


class KubeletUnavailable(Exception):
    """The kubelet cannot be served now; the message is a sentence. The registration retries."""


class KubeletAbsent(KubeletUnavailable):
    """The kubelet does not run."""


class PluginRegistration:
    """One plugin, in a thread of its own, so that a failing resource does not affect the others."""

    def __init__(
        self, folder: DirectoryWatch, node: AgentNode, plugin: DevicePlugin, run: str
    ) -> None:
        self._folder, self.plugins = folder, folder.path
        self.socket = self.plugins / "kubelet.sock"
        self._node, self._plugin, self._resource = node, plugin, plugin.resource
        self._names, self._numbers = f"{self._resource.endpoint}.{run}-", count(1)
        self._log = StateLogger(log)
        self.registered = False
        # since when, or later, the kubelet does not have the devices
        self._lacking_since = time.monotonic()

    @property
    def resource(self) -> str:
        return self._resource.name

    @property
    def took(self) -> Latency:
        """Durations of Allocate."""
        return self._plugin.took

    @property
    def has_devices(self) -> bool:
        """A resource is registered only while it has devices."""
        return bool(self._resource.devices(self._node.state))

    def is_awaited(self, now: float) -> bool:
        """Returns whether the kubelet's list of devices is out of date, and the kubelet is expected to update it.
        False after a while if a running kubelet does not take them. now: monotonic."""
        offered = self.registered and self._plugin.streams["listed"]
        return not offered and now - self._lacking_since < REFUSED_S and self.has_devices

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            # Do not show users a resource without devices.
            if not self.has_devices:
                self._node.wait(
                    lambda state: stop.is_set() or bool(self._resource.devices(state)), 60
                )
                self._lacking_since = time.monotonic()
                continue
            # Do not allocate before the current grants are known.
            self._node.wait(lambda state: state.grants_known or stop.is_set(), GRANTS_S)
            try:
                if self._serve_once(stop):
                    backoff.reset()
            except KubeletUnavailable as error:
                if isinstance(error, KubeletAbsent):
                    self._lacking_since = time.monotonic()
                self._log.failed(f"cannot serve the kubelet: {error}")
                stop.wait(backoff.pause_s())

    def _serve_once(self, stop: threading.Event) -> bool:
        """Serves until the kubelet restarts, the last device goes, or stop; returns True. If its socket is removed, it
        serves another one beside the calls that the kubelet has open, so that the kubelet keeps its devices."""
        workers = ThreadPoolExecutor(THREADS, thread_name_prefix="plugin")
        servers: list[grpc.Server] = []
        try:
            again = True
            while again and len(servers) < SERVERS:
                servers.append(self._listen(workers))
                ours, kubelet = identity(self.own), identity(self.socket)
                self._plugin.grants.refresh(GRANTS_S)  # a new kubelet may have forgotten pods
                self._register(self.own)
                self._log.ok(f"registered {self._resource.name} with the kubelet at {self.socket}")
                self.registered = True
                self._node.wake()  # the reporter
                again = self._watch(stop, ours, kubelet)
            return True
        finally:
            self.registered = False
            self._plugin.end_lists()
            self._node.wake()
            if stop.is_set():
                time.sleep(SWITCH_S)
            for ended in [server.stop(grace=0.2) for server in servers]:
                ended.wait(timeout=1.0)
            workers.shutdown(wait=False)
            for path in self.plugins.glob(f"{self._names}*"):
                path.unlink(missing_ok=True)

    def _listen(self, workers: ThreadPoolExecutor) -> grpc.Server:
        self.own = self._next_path()
        self._check_directory()
        self._plugin.streams = Counter()
        server = grpc.server(workers)
        rpc.add_DevicePluginServicer_to_server(self._plugin, server)
        listen(server, self.own)
        server.start()
        return server

    def _next_path(self) -> Path:
        return self.plugins / f"{self._names}{next(self._numbers)}.sock"

    def _check_directory(self) -> None:
        _check_length(self.own)
        try:
            if not self.plugins.is_dir():
                raise KubeletUnavailable(
                    f"{self.plugins} does not exist: mount the kubelet's directory, or set "
                    f"--kubelet-dir"
                )
            allowed = os.access(self.plugins, os.W_OK | os.X_OK)
            there = allowed and self.socket.exists()
        except PermissionError:
            allowed = there = False
        if not allowed:
            raise KubeletUnavailable(
                f"no permission to write to {self.plugins}: the agent must run as root"
            )
        if not there:
            raise KubeletAbsent(f"{self.socket} does not exist: the kubelet is not running")
        if not os.access(self.socket, os.R_OK | os.W_OK):
            raise KubeletUnavailable(
                f"no permission to connect to {self.socket}: the agent must run as root"
            )

    def _register(self, path: Path) -> None:
        request = pb.RegisterRequest(
            version=VERSION,
            endpoint=path.name,
            resource_name=self._resource.name,
            options=self._plugin.options,
        )
        with grpc.insecure_channel(f"unix:{self.socket}", options=CHANNEL) as channel:
            try:
                rpc.RegistrationStub(channel).Register(request, timeout=REGISTER_S)
            except grpc.RpcError as error:
                absent = error.code() == grpc.StatusCode.UNAVAILABLE
                raise (KubeletAbsent if absent else KubeletUnavailable)(
                    f"{self.socket} rejected the registration: {details(error)}"
                ) from None

    def _watch(self, stop: threading.Event, ours: Identity, kubelet: Identity) -> bool:
        """Returns whether the own socket is gone, and nothing else ends the service."""
        heard, changes = time.monotonic(), -1
        had_devices = time.monotonic()
        streams, others, registrations = self._plugin.streams, 0, 1
        while not self._idle(stop, changes):
            changes = self._changes()
            if self.has_devices:
                had_devices = time.monotonic()
            elif time.monotonic() - had_devices > EMPTY_S:
                self._log.ok(f"{self._resource.name} has no devices any more")
                return False
            if identity(self.socket) != kubelet:
                self._log.ok("the kubelet has restarted")
                return False
            if identity(self.own) != ours:
                self._log.ok(f"{self.own} was removed")
                return True
            if streams["listed"]:
                self._lacking_since = time.monotonic()
            if streams["open"] >= registrations:
                heard = time.monotonic()
            hung_up = streams["dropped"] and not refuses(self.socket)
            if hung_up or time.monotonic() - heard > SILENT_S:
                raise KubeletUnavailable(
                    f"it has dropped this plugin; does another plugin serve {self._resource.name}?"
                )
            if others != streams["others"]:
                others = streams["others"]
                # A kubelet before 1.37 now has no plugin of the resource, or soon. Open calls stay.
                stop.wait(SWITCH_S)
                (again := self._next_path()).hardlink_to(self.own)
                self._register(again)
                registrations, heard = registrations + 1, time.monotonic()
        return False

    def _changes(self) -> int:
        """Grows with each change in the directory, and each call of ListAndWatch that ends."""
        streams = self._plugin.streams
        return self._folder.changes + streams["dropped"] + streams["others"]

    def _idle(self, stop: threading.Event, changes: int) -> bool:
        """Waits for a change since then, or until the next check; returns whether to stop."""
        watched = self._folder.watching and self._plugin.streams["open"]
        self._node.wait(
            lambda _: stop.is_set() or self._changes() != changes, WATCHED_S if watched else POLL_S
        )
        return stop.is_set()


def listen(server: grpc.Server, path: Path) -> None:
    """Adds a socket to a server that has not started. Raises KubeletUnavailable."""
    _check_length(path)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        why = _why(path) or error
        raise KubeletUnavailable(f"cannot listen on {path}: {why}") from None


def _check_length(path: Path) -> None:
    length = len(str(path).encode())
    if length > PATH_BYTES:
        raise KubeletUnavailable(
            f"the path {path} has {length} bytes; a unix socket's path is limited to "
            f"{PATH_BYTES}: use a shorter --kubelet-dir"
        )


def _why(path: Path) -> str:
    """gRPC does not say why it cannot listen, so try to bind and report the kernel's error."""
    with socket.socket(socket.AF_UNIX) as own:
        try:
            own.bind(str(path))
        except OSError as error:
            return error.strerror or str(error)
    path.unlink(missing_ok=True)
    return ""
