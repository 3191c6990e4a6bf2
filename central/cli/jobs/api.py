"""The API server for the commands: list, watch and change objects, with errors as sentences for users."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self
from urllib.parse import urlencode

import orjson

from central.cli import exit_codes
from central.cli.exit_codes import CannotDo
from central.cli.patient_client import PatientClient, is_away
from central.cli.user_client import reachable
from central.kube.resource_paths import BY_KIND, ResourcePath
from central.kube.transport.configuration import KubeconfigError, load_user_config
from central.kube.transport.http_client import MERGE, StatusError, Stream, Unreachable
from central.kube.transport.list_pages import pages
from central.model.json_types import Json
from protos.common.near_names import did_you_mean

PAGE = 500
GONE = 410
REWATCH_S = 1.0


def refusal_code(status: int) -> int:
    """The exit code for a status of the API server."""
    if status == 404:
        return exit_codes.NOT_FOUND
    return exit_codes.UNREACHABLE if is_away(status) else exit_codes.REFUSED


class TooOld(Exception):
    """The watch must start again from a list."""


JOBS, GROUPS, QUEUES = BY_KIND["Job"], BY_KIND["PodGroup"], BY_KIND["Queue"]
COMMANDS, PODS, EVENTS = BY_KIND["Command"], BY_KIND["Pod"], BY_KIND["Event"]
KINDS = {"job": JOBS, "group": GROUPS, "queue": QUEUES}


class Api:
    """namespace: the user's current one."""

    def __init__(self, client: PatientClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self._resources: dict[str, dict[str, ResourcePath]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def within(self, namespace: str) -> Self:
        """The same client in a namespace that an object names itself."""
        return type(self)(self._client, namespace)

    def close(self) -> None:
        self._client.close()

    def follow(self) -> None:
        """Outlasts outages from now on."""
        self._client.patient = True

    def get(self, kind: ResourcePath, name: str) -> Json:
        try:
            return self._json("GET", kind.path(self.namespace, name), None, kind, name)
        except CannotDo as error:
            if error.code != exit_codes.NOT_FOUND:
                raise
            if kind is JOBS and self.find(GROUPS, name) is not None:
                more = f"it is a PodGroup: lockstep group view {name}"
            elif kind is GROUPS and self.find(JOBS, name) is not None:
                more = f"it is a job: lockstep job view {name}"
            else:
                raise CannotDo(f"{error}{self._near(kind, name)}", error.code) from error
            raise CannotDo(f"{error}; {more}", error.code) from error

    def _near(self, kind: ResourcePath, name: str) -> str:
        """Asks for an object that is nearly the same; empty: none, or the user may not list them."""
        try:
            return did_you_mean(name, [obj["metadata"]["name"] for obj in self.all(kind)])
        except CannotDo:
            return ""

    def find(self, kind: ResourcePath, name: str) -> Json | None:
        """Returns the object; None if it does not exist or the user may not see it."""
        with reachable(), suppress(StatusError):
            return self._client.get(kind.path(self.namespace, name))
        return None

    def all(self, kind: ResourcePath, *, everywhere: bool = False, **query: str) -> list[Json]:
        return self.all_from(kind, everywhere=everywhere, **query)[0]

    def all_from(
        self, kind: ResourcePath, *, everywhere: bool = False, **query: str
    ) -> tuple[list[Json], str]:
        """The objects, and the version from which a watch continues."""
        found: list[Json] = []
        version, path = "0", kind.path("" if everywhere else self.namespace)
        with self._sentences("list", kind):
            for page in pages(self._client, f"{path}?{urlencode(query)}".rstrip("?"), PAGE):
                found += [kind.body(**item) for item in page.get("items") or ()]
                version = str((page.get("metadata") or {}).get("resourceVersion") or "0")
        return found, version

    def watch(
        self, kind: ResourcePath, version: str, *, everywhere: bool = False, **query: str
    ) -> Iterator[tuple[str, Json]]:
        """Events after that version: ADDED, MODIFIED, DELETED, BOOKMARK. Ends when the server closes
        the connection. Raises TooOld, also when the server goes away."""
        parameters = {
            **query,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
        }
        path = kind.path("" if everywhere else self.namespace)
        with self._sentences("watch", kind):
            try:
                with self._client.stream(f"{path}?{urlencode(parameters)}", 330.0) as stream:
                    for line in stream:
                        event = orjson.loads(line)
                        if event["type"] == "ERROR":
                            if _is_passing(event["object"].get("code") or 500):
                                raise TooOld
                            raise CannotDo(str(event["object"].get("message")))
                        yield event["type"], event["object"]
            except Unreachable as error:
                raise TooOld from error
            except StatusError as refused:
                if _is_passing(refused.status):
                    raise TooOld from refused
                raise

    def changes(
        self, kind: ResourcePath, *, everywhere: bool = False, **query: str
    ) -> Iterator[tuple[str, Json]]:
        """LISTED for each present object, then ADDED, MODIFIED and DELETED without end. If the watch
        must start again from a list, only what changed since is yielded."""
        self.follow()
        seen: dict[str, Json] = {}
        first = True
        while True:
            objects, version = self.all_from(kind, everywhere=everywhere, **query)
            listed = {obj["metadata"]["uid"]: obj for obj in objects}
            for uid in seen.keys() - listed.keys():
                yield "DELETED", seen.pop(uid)
            for uid, obj in listed.items():
                if uid not in seen or _version(seen[uid]) != _version(obj):
                    seen[uid] = obj
                    yield ("LISTED" if first else "MODIFIED"), obj
            first = False
            try:
                while True:
                    for event, obj in self.watch(kind, version, everywhere=everywhere, **query):
                        version = _version(obj)
                        if event == "BOOKMARK":
                            continue
                        if event == "DELETED":
                            seen.pop(obj["metadata"]["uid"], None)
                        else:
                            seen[obj["metadata"]["uid"]] = obj
                        yield event, obj
                    time.sleep(REWATCH_S)
            except TooOld:
                time.sleep(REWATCH_S)

    def stream(self, path: str) -> Stream:
        """Raises StatusError or CannotDo."""
        with reachable():
            return self._client.stream(path, 3600.0)

    def create(self, kind: ResourcePath, obj: Json) -> Json:
        meta = obj.get("metadata") or {}
        name = str(meta.get("name") or meta.get("generateName") or "")
        path = kind.path(str(meta.get("namespace") or self.namespace))
        return self._json("POST", path, obj, kind, name)

    def patch(self, kind: ResourcePath, name: str, change: Json) -> Json:
        return self._json("PATCH", kind.path(self.namespace, name), change, kind, name)

    def delete(self, kind: ResourcePath, name: str) -> None:
        options = {"propagationPolicy": "Background"}
        self._json("DELETE", kind.path(self.namespace, name), options, kind, name)

    def kind_of(self, obj: Json) -> ResourcePath:
        """The kind of a manifest, which may be any that the server serves. Raises CannotDo."""
        version, name = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
        if version not in self._resources:
            group, _, number = version.rpartition("/")
            root = f"/apis/{version}" if group else f"/api/{version}"
            try:
                with reachable():
                    served = self._client.get(root).get("resources") or ()
            except StatusError as refused:
                if refused.status != 404:
                    raise CannotDo(refused.message, refusal_code(refused.status)) from refused
                served = ()
            self._resources[version] = {
                one["kind"]: ResourcePath(
                    group, number, one["kind"], one["name"], one["namespaced"]
                )
                for one in served
                if "/" not in one["name"]
            }
        kind = self._resources[version].get(name)
        if kind is None:
            raise CannotDo(
                f"the cluster does not serve {name or 'objects without a kind'} "
                f"({version or 'no apiVersion'}){_hint(version)}",
                exit_codes.NOT_FOUND,
            )
        return kind

    def _json(
        self, method: str, path: str, body: Json | None, kind: ResourcePath, name: str
    ) -> Json:
        content = MERGE if method == "PATCH" else "application/json"
        sent = None if body is None else orjson.dumps(body)
        verb = "create" if method == "POST" else method.lower()
        with self._sentences(verb, kind, name):
            reply = self._client.request(method, path, sent, content, timeout_s=60.0)
            found: Json = reply.accepted().json()
            return found

    @contextmanager
    def _sentences(self, verb: str, kind: ResourcePath, name: str = "") -> Iterator[None]:
        """Turns the refusals of the API server into CannotDo. name: empty for a list."""
        try:
            with reachable():
                yield
        except StatusError as refused:
            why = _sentence(refused, verb, kind, name, self.namespace)
            raise CannotDo(why, refusal_code(refused.status)) from refused


def _is_passing(code: int) -> bool:
    """Returns whether another list and watch may succeed where a watch ended with this code."""
    return code == GONE or is_away(code)


def _version(obj: Json) -> str:
    return str(obj["metadata"]["resourceVersion"])


def open_api(kubeconfig: str | None, context: str | None, namespace: str | None) -> Api:
    """Raises CannotDo."""
    try:
        access, usual = load_user_config(kubeconfig, context)
    except KubeconfigError as error:
        raise CannotDo(str(error)) from error
    return Api(PatientClient(access), namespace or usual)


def usual_namespace(kubeconfig: str | None, context: str | None) -> str:
    """The namespace without asking a server; `default` without a kubeconfig. Raises CannotDo."""
    try:
        return load_user_config(kubeconfig, context)[1]
    except KubeconfigError as error:
        if kubeconfig or context:
            raise CannotDo(str(error)) from error
        return "default"


def named(kind: ResourcePath, namespace: str, name: str) -> str:
    """Names an object for messages: job default/sweep, queue research."""
    return f"{kind.singular} {namespace}/{name}" if kind.namespaced else f"{kind.singular} {name}"


def _sentence(
    refused: StatusError, verb: str, kind: ResourcePath, name: str, namespace: str
) -> str:
    where = named(kind, namespace, name)
    match refused.status:
        case 401:
            return f"the API server does not accept your credentials: {refused.message}"
        case 403:
            what = f"this {kind.singular}" if name else kind.plural
            return f"you may not {verb} {what}: {refused.message}"
        case 404 if name and verb != "create" and refused.reason == "NotFound":
            return f"{where} not found"
        case 404 if "amespace" in refused.message:
            return f"namespace {namespace} not found"
        case 404:
            return f"the cluster does not serve {kind.plural} of {kind.api_version}{_hint(kind.api_version)}"
        case 409 if refused.reason == "AlreadyExists":
            return f"{where} already exists"
        case _:
            return refused.message


def _hint(version: str) -> str:
    ours = ".volcano.sh/" in version
    return "; install the CRDs with kubectl apply -k daemonset" if ours else ""
