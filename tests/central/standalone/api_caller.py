"""The standalone API as the real kubernetes client's transport calls it, and the objects of these tests."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client as kubernetes
from kubernetes.client.exceptions import ApiException

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
MERGE, STRATEGIC, PATCH = (
    f"application/{kind}+json" for kind in ("merge-patch", "strategic-merge-patch", "json-patch")
)


class Caller:
    """The client's own transport with raw JSON: as the scheduler does it, without types."""

    def __init__(self, url: str) -> None:
        self.api = kubernetes.ApiClient(kubernetes.Configuration(host=url))
        self.core = kubernetes.CoreV1Api(self.api)

    def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: Any
    ) -> Json:
        with self.open(method, path, body, kind, **query) as response:
            answer: Json = json.loads(response.data)
        if response.status >= 400:
            raise ApiException(status=response.status, reason=answer["message"])
        return answer

    def open(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: Any
    ) -> Any:
        url = f"{self.api.configuration.host}{path}"
        if query:
            url += "?" + "&".join(f"{name}={value}" for name, value in query.items())
        return self.api.rest_client.pool_manager.request(
            method,
            url,
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": kind},
            preload_content=False,
        )


def pod(name: str, **more: Any) -> Json:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {
        "metadata": metadata,
        "spec": {
            "schedulerName": "lockstep",
            "containers": [
                {"name": "main", "image": "busybox:1", "resources": {"limits": {"a.b/gpu": 2}}}
            ],
            **more,
        },
    }


def binding(name: str, node: str) -> Json:
    return {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}


def refusal(act: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ApiException) as error:
        act()
    return error.value.status, str(error.value.reason)
