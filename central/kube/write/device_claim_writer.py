"""Writes the devices that a pod's claims get, and the pod as their user, before the pod is bound.

As kube-scheduler does: the finalizer first, then allocation and reservedFor in one write, each with the resourceVersion
that was read. A claim that another scheduler has allocated otherwise is an error, and the pod is planned anew. After a
binding that failed, what was written for it is taken back. Devices with conditions are waited for; an allocation of
which one fails, or is not ready in time, is taken back, too, unless other pods use it.

Design: docs/design/device-claims.md
"""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from central.kube.decode.device_claim_decoder import CONDITIONS, FINALIZER, GROUPS, unready
from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import MERGE, Client, Reply
from central.kube.write import extended_claim, pod_requests
from central.kube.write.pod_requests import checked
from central.kube.write.retrying import Retry, call, object_of, says_gone
from central.model.decisions import Bind
from central.model.device_claims import AllocatedDevice, ClaimAllocation, Places
from central.model.json_types import Json

CLAIM, CLASS = BY_KIND["ResourceClaim"], BY_KIND["DeviceClass"]
CONFLICT = 409
POLL_S = 1.0
READY_WITHIN_S = 600.0  # as kube-scheduler's bindingTimeout
_WHICH = AllocatedDevice._fields[:4]  # of a device in an allocation


class DeviceClaimWriter:
    def __init__(self, client: Client) -> None:
        self._client = client

    def allocate(self, bind: Bind) -> str:
        """Allocates the pod's claims and reserves them for it. Returns why that is impossible; empty: it is done.
        Raises Retry, also while devices are not ready, and Refused if one has failed."""
        waits: list[Retry] = []
        for planned in bind.device_claims:
            name = extended_claim.name_of(bind) if planned.served else planned.claim
            allocate = self._allocate_made if planned.served else self._allocate
            try:  # so that the devices of all claims are prepared at once
                why = allocate(bind, planned)
            except Retry as error:
                if not error.within_s:
                    raise
                waits.append(error)
                continue
            if why:
                return f"ResourceClaim {name} {why}"
        if waits:
            raise waits[0]
        return ""

    def release(self, bind: Bind) -> None:
        """Takes back what allocate() wrote, unless the pod has a node. Raises Retry, Refused."""
        pod = pod_requests.read_pod(self._client, bind.namespace, bind.name, bind.pod)
        if pod is not None and (pod.get("spec") or {}).get("nodeName"):
            return
        for planned in bind.device_claims:
            if planned.served:
                made = self._read_named(bind, extended_claim.name_of(bind))
                if made is not None and extended_claim.is_of(made, bind):
                    self._delete(bind, made)
                continue
            claim = self._read(bind, planned)
            if claim is None:
                continue
            status = claim.get("status") or {}
            users = status.get("reservedFor") or []
            others = [user for user in users if user.get("uid") != bind.pod]
            planned_so = planned.devices and _devices(status) == _planned(planned)
            ours = (planned_so or unready(status)[0]) and not others
            if ours or len(others) < len(users):
                change: Json = {"reservedFor": others or None}
                if ours:
                    change["allocation"] = None
                self._patch(bind, claim, {"status": change}, "/status")

    def _allocate(self, bind: Bind, planned: ClaimAllocation) -> str:
        claim = self._read(bind, planned)
        if claim is None:
            return "is gone"
        meta, status = claim["metadata"], claim.get("status") or {}
        if meta.get("deletionTimestamp"):
            return "is being deleted"
        allocated = _devices(status)
        if allocated is None and not planned.devices:
            return "is not allocated"
        if allocated is not None and planned.devices and allocated != _planned(planned):
            return "got other devices meanwhile"
        users = status.get("reservedFor") or []
        user = {"resource": "pods", "name": bind.name, "uid": bind.pod}
        if planned.group[1]:
            user = dict(
                zip(("apiGroup", "resource", "name", "uid"), (*GROUPS, *planned.group), strict=True)
            )
        if any(each.get("uid") == user["uid"] for each in users):
            return self._check_ready(claim)
        change: Json = {"reservedFor": [*users, user]}
        if allocated is None:
            claim = self._with_finalizer(bind, claim)
            change["allocation"] = self._allocation(claim, planned)
        reply = self._patch(bind, claim, {"status": change}, "/status")
        if not reply.ok:
            return reply.error().message
        return self._check_ready(object_of(reply, CLAIM, planned.claim))

    @staticmethod
    def _check_ready(claim: Json) -> str:
        """Raises Retry while conditions of its devices must be waited for, and Refused if a device has failed."""
        why, failed = unready(claim.get("status") or {})
        if failed:
            raise pod_requests.Refused(f"ResourceClaim {claim['metadata']['name']}: {why}")
        if why:
            raise Retry(f"ResourceClaim {claim['metadata']['name']}: {why}", POLL_S, READY_WITHIN_S)
        return ""

    def _read(self, bind: Bind, planned: ClaimAllocation) -> Json | None:
        """Reads the claim. Returns None if it is gone, or another one has its name."""
        claim = self._read_named(bind, planned.claim)
        return claim if claim is not None and claim["metadata"]["uid"] == planned.uid else None

    def _read_named(self, bind: Bind, name: str) -> Json | None:
        reply = call(self._client, "GET", CLAIM.path(bind.namespace, name))
        if says_gone(reply, CLAIM, name):
            return None
        return object_of(checked(reply, f"ResourceClaim {name}"), CLAIM, name)

    # --- the claim for extended resources ---------------------------------------------

    def _allocate_made(self, bind: Bind, planned: ClaimAllocation) -> str:
        """Makes the claim, allocates it, and tells the kubelet of it in the pod's status."""
        pod = pod_requests.read_pod(self._client, bind.namespace, bind.name, bind.pod)
        if pod is None:
            return "is of a pod that is gone"
        try:
            claim, given, status = extended_claim.claim_of(bind, planned, pod, FINALIZER)
        except (ValueError, TypeError, KeyError) as error:  # InvalidQuantity is a ValueError
            return f"cannot be made: {error}"
        made = self._made(bind, claim)
        if not extended_claim.is_of(made, bind):
            return "belongs to another pod"
        if why := self._allocate(bind, given._replace(uid=made["metadata"]["uid"])):
            self._delete(bind, made)
            raise Retry(f"ResourceClaim {given.claim} {why}")
        body = {"metadata": {"uid": bind.pod}, "status": {"extendedResourceClaimStatus": status}}
        path = pod_requests.POD.path(bind.namespace, bind.name) + "/status"
        reply = call(self._client, "PATCH", path, body, MERGE)
        if not reply.ok:
            return reply.error().message
        told = object_of(reply, pod_requests.POD, bind.name)["status"]
        if not told.get("extendedResourceClaimStatus"):
            return "cannot be used: the API server keeps no extendedResourceClaimStatus (Kubernetes 1.36 does)"
        return ""

    def _made(self, bind: Bind, claim: Json) -> Json:
        """Creates the claim, or reads the one that an earlier attempt has created."""
        name = claim["metadata"]["name"]
        reply = call(self._client, "POST", CLAIM.path(bind.namespace), claim)
        if reply.status != CONFLICT:
            return object_of(checked(reply, f"ResourceClaim {name}"), CLAIM, name)
        if (found := self._read_named(bind, name)) is None:
            raise Retry(f"ResourceClaim {name} has gone")
        return found

    def _delete(self, bind: Bind, claim: Json) -> None:
        """Deletes a claim that was made for the pod. Without its finalizer, which is for claims of running pods."""
        meta = claim["metadata"]
        reply = self._patch(bind, claim, {"metadata": {"finalizers": None}})
        if reply.ok:
            options = {"preconditions": {"uid": meta["uid"]}}
            reply = call(self._client, "DELETE", CLAIM.path(bind.namespace, meta["name"]), options)
        if not says_gone(reply, CLAIM, meta["name"]):
            checked(reply, f"ResourceClaim {meta['name']}")

    def _with_finalizer(self, bind: Bind, claim: Json) -> Json:
        name, known = claim["metadata"]["name"], claim["metadata"].get("finalizers") or []
        if FINALIZER in known:
            return claim
        reply = self._patch(bind, claim, {"metadata": {"finalizers": [*known, FINALIZER]}})
        return object_of(checked(reply, f"ResourceClaim {name}"), CLAIM, name)

    def _patch(self, bind: Bind, claim: Json, change: Json, part: str = "") -> Reply:
        """Raises Retry if the claim has changed since it was read."""
        meta = claim["metadata"]
        version = {"resourceVersion": meta.get("resourceVersion")}
        body = {**change, "metadata": {**change.get("metadata", {}), **version}}
        path = CLAIM.path(bind.namespace, meta["name"]) + part
        reply = call(self._client, "PATCH", path, body, MERGE)
        if reply.status == CONFLICT:
            raise Retry(f"ResourceClaim {meta['name']} has changed")
        return reply

    def _allocation(self, claim: Json, planned: ClaimAllocation) -> Json:
        asked = claim["spec"].get("devices") or {}
        alternatives = dict(_alternatives(asked))
        results = []
        for device in planned.devices:
            result: Json = dict(zip(_WHICH, device, strict=False))
            if device.consumed is not None:
                result["shareID"] = str(uuid4())
                result |= {"consumedCapacity": dict(device.consumed)} if device.consumed else {}
            if device.admin:
                result["adminAccess"] = True
            result |= {
                key: [*some]
                for key, some in zip(CONDITIONS, device.conditions, strict=True)
                if some
            }
            if tolerations := alternatives.get(device.request, {}).get("tolerations"):
                result["tolerations"] = tolerations
            results.append(result)
        chosen = list(dict.fromkeys(device.request for device in planned.devices))
        devices: Json = {"results": results}
        if config := self._config(asked, alternatives, chosen):
            devices["config"] = config
        found: Json = {"devices": devices}
        if any(wait for wait, _ in (device.conditions for device in planned.devices)):
            found["allocationTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if planned.places:
            found["nodeSelector"] = {"nodeSelectorTerms": [_term(planned.places)]}
        return found

    def _config(self, asked: Json, alternatives: dict[str, Json], chosen: list[str]) -> list[Json]:
        """The drivers' parameters of the chosen alternatives' classes, and those of the claim."""
        by_class: dict[str, list[str]] = {}
        for request in chosen:
            name = alternatives.get(request, {}).get("deviceClassName", "")
            by_class.setdefault(name, []).append(request)
        found: list[Json] = []
        for name, requests in by_class.items():
            reply = checked(call(self._client, "GET", CLASS.path("", name)), f"DeviceClass {name}")
            spec = object_of(reply, CLASS, name).get("spec") or {}
            found += (
                _entry("FromClass", each, requests, chosen) for each in spec.get("config") or ()
            )
        for each in asked.get("config") or ():
            requests = each.get("requests") or []
            used = [one for one in chosen if {one, one.partition("/")[0]} & {*requests}]
            if used or not requests:
                found.append(_entry("FromClaim", each, requests, chosen))
        return found


def _entry(source: str, config: Json, requests: list[str], chosen: list[str]) -> Json:
    """One entry of the allocation's config. Without requests it holds for all of them."""
    parameters = {key: value for key, value in config.items() if key != "requests"}
    whole = not requests or all({one, one.partition("/")[0]} & {*requests} for one in chosen)
    return {"source": source, **parameters, **({} if whole else {"requests": requests})}


def _devices(status: Json) -> list[tuple[object, ...]] | None:
    """The devices that are allocated, each as _WHICH says."""
    if (allocation := status.get("allocation")) is None:
        return None
    results = (allocation.get("devices") or {}).get("results") or ()
    return [tuple(str(each.get(field, "")) for field in _WHICH) for each in results]


def _planned(planned: ClaimAllocation) -> list[tuple[object, ...]]:
    return [device[: len(_WHICH)] for device in planned.devices]


def _alternatives(asked: Json) -> list[tuple[str, Json]]:
    found = []
    for request in asked.get("requests") or ():
        name = request["name"]
        found.append((name, request.get("exactly") or {}))
        found += ((f"{name}/{each['name']}", each) for each in request.get("firstAvailable") or ())
    return found


def _term(places: Places) -> Json:
    """One term with all requirements. The API lets the selectors of devices have one term each."""
    fields: list[Any] = []
    labels: list[Any] = []
    for requirement in (one for terms in places for one in (terms[0] if terms else ())):
        one = {"key": requirement.key, "operator": requirement.operator}
        if requirement.values:
            one["values"] = list(requirement.values)  # type: ignore[assignment]
        (fields if requirement.field else labels).append(one)
    term = {"matchFields": fields, "matchExpressions": labels}
    return {key: found for key, found in term.items() if found}
