"""The least that a binder can do: every pod's Binding, posted, many in flight. python -m
tests.benchmarks.bare KUBECONFIG WORKERS"""

import sys
from concurrent.futures import ThreadPoolExecutor

import orjson

from central.kube.transport.http_client import connect


def main(kubeconfig: str, workers: int) -> None:
    client = connect(kubeconfig)
    nodes = [node["metadata"]["name"] for node in client.get("/api/v1/nodes")["items"]]
    pods = client.get("/api/v1/namespaces/default/pods")["items"]

    def bind(number: int) -> None:
        name = pods[number]["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": nodes[number // 4 % len(nodes)]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        path = f"/api/v1/namespaces/default/pods/{name}/binding"
        reply = client.request("POST", path, orjson.dumps(body))
        assert reply.ok, reply.body

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(bind, range(len(pods))))
    client.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
