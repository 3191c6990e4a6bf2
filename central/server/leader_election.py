"""Whether this centre is the one that decides. Others stand by: they have read their certificate, and
nothing else yet. Who takes over lists everything anew, so it decides on what the last one did.

    leading = Leading(client, namespace, pod, elect=True, lease_s=15)
    leading.win(stopped)          # waits for the Lease; False: stopped meanwhile
    leading.keep(lost)            # renews it from now on; lost() is called when that fails
    leading.leave()               # after the last call: the next one need not wait
"""

import logging
import socket
import threading
import uuid
from collections.abc import Callable

from central.kube.transport.http_client import Client, Refused, Unreachable
from central.kube.transport.lease import Lease
from central.kube.write import leader_label

log = logging.getLogger(__name__)


class Leading:
    def __init__(
        self, client: Client, namespace: str, pod: str, *, elect: bool, lease_s: int
    ) -> None:
        """pod: our own, empty outside of a cluster."""
        self.leads = False
        self.trouble = ""  # while it stands by: why it could not take over either
        self.lost = False
        self._client, self._namespace, self._pod = client, namespace, pod
        self._elect, self._every_s = elect, lease_s / 8
        holder = f"{pod or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self._lease = Lease(client, namespace, holder, lease_s, pod=pod)
        self._marked = not pod
        self._on_lost: Callable[[], None] = lambda: None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def may_act(self) -> bool:
        return self._lease.held or not self._elect

    def win(self, stopped: Callable[[float], bool]) -> bool:
        """stopped(s): waits so long; whether we are to end."""
        if self._elect and self._pod:
            leader_label.mark(self._client, self._namespace, self._pod, leads=False)
        other = None
        while self._elect and not self._take():
            if other != (other := self._lease.other) and other:
                log.info("%s leads; standing by", other)
            if stopped(self._every_s):
                return False
        self.leads = True
        log.info("leading")
        return True

    def keep(self, lost: Callable[[], None]) -> None:
        """Agents and users are led here, and the Lease is renewed, until leave()."""
        self._on_lost = lost
        self._mark()
        self._thread.start()

    def leave(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(2 * self._every_s)
        if not self._elect or not self.leads or self.lost:
            return
        try:
            if self._pod:
                leader_label.mark(self._client, self._namespace, self._pod, leads=False)
            self._lease.release()
        except (Unreachable, Refused) as error:
            log.info("the lease runs out by itself: %s", error)

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            if not self._marked:
                self._mark()
            if self._elect and not self._take() and not self._lease.held:
                why = self.trouble or f"{self._lease.other or 'somebody else'} has it"
                log.error("the lease is lost: %s; ending, to stand by anew", why)
                self.lost = True
                self._on_lost()
                return

    def _take(self) -> bool:
        try:
            taken = self._lease.take()
        except (Unreachable, Refused) as error:
            if str(error) != self.trouble:
                log.warning("the lease can't be taken or renewed: %s", error)
            self.trouble = str(error)
            return False
        self.trouble = ""
        return taken

    def _mark(self) -> None:
        if not self._marked:
            self._marked = leader_label.mark(self._client, self._namespace, self._pod, leads=True)
