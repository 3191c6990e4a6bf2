"""Leader election between replicas of the scheduler. A replica that stands by has its certificate and
has read nothing else. The new leader lists everything, so it builds on what the last one did.

    election = LeaderElection(client, namespace, pod, elect=True, lease_s=15)
    election.acquire(stopped)     # waits for the Lease; False: stopped meanwhile
    election.start(lost)          # renews it from now on; calls lost() when that fails
    election.release()            # after the last API call, so that the next leader need not wait
"""

import logging
import socket
import uuid
from collections.abc import Callable

from central.kube.transport.http_client import Client, StatusError, Unreachable
from central.kube.transport.lease import Lease
from central.kube.transport.runtime import RUNTIME, Runtime
from central.kube.write import leader_label

log = logging.getLogger(__name__)


class LeaderElection:
    def __init__(
        self,
        client: Client,
        namespace: str,
        pod: str,
        *,
        elect: bool,
        lease_s: int,
        runtime: Runtime = RUNTIME,
    ) -> None:
        """pod: the name of our own pod, empty outside of a cluster."""
        self.is_leader = False
        self.problem = ""  # why the Lease can't be taken or renewed; empty: nothing is wrong
        self.lost = False
        self._client, self._namespace, self._pod = client, namespace, pod
        self._elect, self._every_s = elect, lease_s / 8
        holder = f"{pod or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._lease = Lease(
            client, namespace, holder, lease_s, pod=pod, clock=runtime.monotonic, wall=runtime.time
        )
        self._alone_since = int(runtime.time())
        self._labelled = not pod
        self._on_lost: Callable[[], None] = lambda: None
        self._ending = runtime.flag()
        self._thread = runtime.thread(self._run, "lease")

    @property
    def term(self) -> int:
        """Grows with each leader. Without an election: the time at which this process became one."""
        return self._lease.transitions if self._elect else self._alone_since

    def may_act(self) -> bool:
        return self._lease.held or not self._elect

    def acquire(self, stopped: Callable[[float], bool]) -> bool:
        """stopped(s) waits up to s seconds and returns whether the process is to end."""
        if self._elect and self._pod:
            leader_label.set_label(self._client, self._namespace, self._pod, leads=False)
        other = None
        while self._elect and not self._take():
            if other != (other := self._lease.other_holder) and other:
                log.info("standing by; the leader is %s", other)
            if stopped(self._every_s):
                return False
        self.is_leader = True
        log.info("this replica is the leader")
        return True

    def start(self, lost: Callable[[], None]) -> None:
        """Labels the pod, so that the Service routes to it, and renews the Lease until release()."""
        self._on_lost = lost
        self._label()
        self._thread.start()

    def release(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._every_s)
        if not self._elect or not self.is_leader or self.lost:
            return
        try:
            if self._pod:
                leader_label.set_label(self._client, self._namespace, self._pod, leads=False)
            self._lease.release()
        except (Unreachable, StatusError) as error:
            log.info("could not release the lease (%s); it will expire", error)

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            if not self._labelled:
                self._label()
            if self._elect and not self._take() and not self._lease.held:
                why = self.problem or f"{self._lease.other_holder or 'another replica'} holds it"
                log.error("lost the lease: %s; exiting", why)
                self.lost = True
                self._on_lost()
                return

    def _take(self) -> bool:
        try:
            taken = self._lease.acquire()
        except (
            Exception
        ) as error:  # whatever it is, this thread must go on: the lease depends on it
            if not isinstance(error, Unreachable | StatusError):
                log.exception("unhandled exception in the leader election (bug)")
            elif str(error) != self.problem:
                log.warning("could not take or renew the lease: %s", error)
            self.problem = str(error) or type(error).__name__
            return False
        self.problem = ""
        return taken

    def _label(self) -> None:
        if not self._labelled:
            self._labelled = leader_label.set_label(
                self._client, self._namespace, self._pod, leads=True
            )
