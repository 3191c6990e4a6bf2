"""A client for commands that follow something: once the API server has answered, an outage (a control plane that is
upgraded, say) is told once, and reads are repeated until it answers again."""

import random
import sys
import time
from typing import Any

from central.cli import terminal_table
from central.kube.transport.http_client import Client, Reply, Unreachable

PATIENCE_S = 900.0  # of an outage, after which the command fails as without this
PAUSES_S = (0.25, 5.0)  # the first and the longest between two attempts


def is_away(status: int) -> bool:
    """Returns whether the same request may succeed later."""
    return status == 429 or status >= 500


class PatientClient(Client):
    """patient: whether reads are repeated; set by the commands that follow."""

    patient = False
    _answered = False
    _is_told = False

    def request(self, method: str, path: str, *args: Any, **options: Any) -> Reply:
        until, pause_s = time.monotonic() + PATIENCE_S, PAUSES_S[0]
        while True:
            lasts = method == "GET" and self.patient and self._answered and time.monotonic() < until
            try:
                reply = super().request(method, path, *args, **options)
                if not is_away(reply.status):
                    self._answered, self._is_told = True, False
                    return reply
                if not lasts:
                    return reply
                why = f"{self.server}: {reply.error()}"
            except Unreachable as error:
                if not lasts:
                    raise
                why = str(error)
            if not self._is_told:
                self._is_told = True
                said = f"lockstep: the API server does not answer: {why}; trying again"
                print(terminal_table.printable(said), file=sys.stderr, flush=True)
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, PAUSES_S[1])
