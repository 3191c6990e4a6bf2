"""A hollow node's agent: the real program in its own process, with a real token of its Pod, the node's capture and
the sockets of its hollow kubelet."""

import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from central.kube.resource_paths import BY_KIND
from central.kube.transport.http_client import Client
from central.model.json_types import Json
from protos.common import own_program
from protos.common.child_process import start_bound, wait_or_kill
from protos.names import AGENT_ACCOUNT, AUDIENCE

TOKEN_S = 30 * 86400


def agent_pod(namespace: str, node: str) -> Json:
    """The agent's Pod, as the DaemonSet would create it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{AGENT_ACCOUNT}-{node}",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": AGENT_ACCOUNT},
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": AGENT_ACCOUNT,
            "containers": [{"name": "agent", "image": "ghcr.io/lockstep/agent:0.1.0"}],
        },
    }


def token(client: Client, namespace: str, account: str, pod: Json | None = None) -> str:
    """A token of this ServiceAccount for the scheduler, bound to the pod if one is given."""
    spec: Json = {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_S}
    if pod is not None:
        spec["boundObjectRef"] = BY_KIND["Pod"].body(
            name=pod["metadata"]["name"], uid=pod["metadata"]["uid"]
        )
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    reply = client.request("POST", path, json.dumps({"spec": spec}).encode())
    return str(reply.accepted().json()["status"]["token"])


class AgentProcess:
    """The log is DIRECTORY/agent.log. capture: None with flags that say where the hardware is."""

    def __init__(
        self,
        node: str,
        directory: Path,
        capture: Path | None,
        *,
        server: str = "",
        ca_file: Path | None = None,
        token_text: str = "",
        flags: Sequence[str] = (),
    ) -> None:
        self.log = directory / "agent.log"
        self._log_file: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False
        self._command = [*own_program.command("agent"), "run", "--node", node]
        self._command += ["--kubelet-dir", str(directory), *flags]
        if capture is not None:
            self._command += ["--capture", str(capture), "--capture-uuids", "own"]
        if server:
            token_file = directory / "token"
            token_file.touch(0o600)
            token_file.write_text(token_text)
            self._command += ["--server", server, "--ca-file", str(ca_file)]
            self._command += ["--token-file", str(token_file)]

    def start(self) -> None:
        self._asked = False
        self._log_file = self.log.open("ab")
        self._process = start_bound(self._command, stdout=self._log_file, stderr=self._log_file)

    @property
    def ended(self) -> int | None:
        """The exit code; None: running, or not started."""
        return None if self._process is None else self._process.poll()

    def interrupt(self) -> None:
        """Sends SIGTERM, once; stop() waits for the end."""
        if self._process is not None and self._process.poll() is None and not self._asked:
            self._asked = True
            self._process.send_signal(signal.SIGTERM)

    def stop(self, patience_s: float = 3.0) -> None:
        self.interrupt()
        if self._process is not None:
            wait_or_kill(self._process, patience_s)
        if self._log_file is not None:
            self._log_file.close()
            self._log_file = None
