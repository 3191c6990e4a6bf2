"""Leader election by a Lease object.

Clocks of different machines are never compared: a holder counts as gone when its Lease has not changed
for the lease's duration, measured by our own clock.

    lease = Lease(client, namespace, "pod-a_1f3c", 15)
    lease.acquire()  # periodically: takes or renews the Lease; True if it is ours
    lease.held       # whether we may still act; false before others may take the Lease

Design: docs/design/api-server.md
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import orjson

from central.kube.transport.http_client import Client, Reply, Unreachable
from central.kube.transport.runtime import RUNTIME
from central.model.json_types import Json

NAME = "lockstep-central"
HELD = 2 / 3  # of the duration; in the rest, requests that are under way may still arrive
REQUEST_S = 4.0  # timeout


class Lease:
    def __init__(
        self,
        client: Client,
        namespace: str,
        holder: str,
        lease_s: int,
        *,
        pod: str = "",
        clock: Callable[[], float] = RUNTIME.monotonic,
        wall: Callable[[], float] = RUNTIME.time,
    ) -> None:
        """lease_s: without a renewal for this long, other replicas may take the Lease. pod: earlier
        processes of this pod, whose names begin with it, have ended: their Lease is free at once."""
        self.other_holder = ""  # at the last acquire(); "" if it is ours
        self._client, self._holder = client, holder
        self._lease_s, self._clock, self._wall = lease_s, clock, wall
        self._before_us = f"{pod}_" if pod else ""  # until we hold the Lease
        self._meta = {"name": NAME, "namespace": namespace}
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
        self.transitions = 0  # of the Lease when it became ours: grows with each holder
        self._until = float("-inf")
        self._seen: tuple[object, ...] = ()  # what the other holder wrote last, and when we saw it
        self._seen_at = 0.0

    @property
    def held(self) -> bool:
        return self._clock() < self._until

    def acquire(self) -> bool:
        """Acquires or renews the Lease. Returns whether this process holds it now. Raises Unreachable, StatusError."""
        asked_at = self._clock()
        found = self._call("GET", f"{self._path}/{NAME}")
        if found.status == 404:
            written = self._call("POST", self._path, self._object(self._meta, {}))
        else:
            raw = self._read(found)
            spec = raw["spec"]
            holder = str(spec.get("holderIdentity") or "")
            if holder != self._holder and not self._is_over(holder, spec):
                self.other_holder, self._until = holder, float("-inf")
                return False
            body = self._object(raw["metadata"], spec)
            written = self._call("PUT", f"{self._path}/{NAME}", body)
        if written.status == 409:  # another replica was faster
            return False
        spec = self._read(written)["spec"]
        if spec.get("holderIdentity") != self._holder:
            raise Unreachable(
                f"{self._client.server}: the answer is not the Lease that was written"
            )
        self._before_us = ""
        self.transitions = int(spec.get("leaseTransitions") or 0)
        self.other_holder, self._until = "", asked_at + HELD * self._lease_s
        return True

    def release(self) -> None:
        """Lets another replica take over at once. Raises Unreachable, StatusError."""
        if not self.held:
            return
        self._until = float("-inf")
        raw = self._read(self._call("GET", f"{self._path}/{NAME}"))
        if raw["spec"].get("holderIdentity") == self._holder:
            raw["spec"] |= {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "renewTime": self._now(),
            }
            self._call("PUT", f"{self._path}/{NAME}", raw)

    def _read(self, reply: Reply) -> Json:
        """The Lease in the reply. Raises Unreachable if it holds anything else."""
        try:
            raw = reply.json()
            spec, meta = raw.get("spec") or {}, raw["metadata"]
            lasts_s = float(spec.get("leaseDurationSeconds") or 1)
            named = meta["name"] == NAME and raw.get("kind", "Lease") == "Lease" and lasts_s > 0
            int(spec.get("leaseTransitions") or 0)
        except (ValueError, KeyError, TypeError, AttributeError):
            named = False
        if not named:
            raise Unreachable(f"{self._client.server}: the answer is not Lease {NAME}")
        found: Json = {**raw, "spec": spec}
        return found

    def _is_over(self, holder: str, spec: Mapping[str, Any]) -> bool:
        if not holder or (self._before_us and holder.startswith(self._before_us)):
            return True
        written = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if written != self._seen:
            self._seen, self._seen_at = written, self._clock()
        lasts_s = float(spec.get("leaseDurationSeconds") or self._lease_s)
        return self._clock() - self._seen_at > lasts_s

    def _object(self, meta: Json, before: Mapping[str, Any]) -> Json:
        now = self._now()
        ours = before.get("holderIdentity") == self._holder
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": self._lease_s,
            "acquireTime": before.get("acquireTime", now) if ours else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (not ours),
        }
        kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return {**kind, "metadata": meta, "spec": spec}

    def _call(self, method: str, path: str, body: Json | None = None) -> Reply:
        content = orjson.dumps(body) if body is not None else None
        reply = self._client.request(method, path, content, timeout_s=REQUEST_S)
        return reply.accepted(409, *((404,) if method == "GET" else ()))

    def _now(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
