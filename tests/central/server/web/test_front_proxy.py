"""The console behind a proxy: over TLS, under a path, for users that the proxy has logged in."""

import base64
import http.client
import json
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from central.server import tls
from central.server.argtypes import https_url, secret
from central.server.web.front_proxy import SHORTEST_SECRET, FrontProxy
from central.server.web.web_request import check
from central.server.web.web_server import ConsoleUnservable, WebServer
from central.standalone.local_cluster import free_port
from protos.common.http_server import HttpRequest, RequestRefused
from tests.central.server.web.console_world import EVERYTHING, Rights, cluster, served
from tests.fakes.chromium import Browser
from tests.fakes.faulty_cluster import FaultyCluster

SECRET = "a secret of sixteen"
HOST = "gpus.example.org"
PROXY = FrontProxy(f"https://{HOST}/lockstep", SECRET.encode(), "oidc:")
RIGHTS = (
    *(("oidc:ops", resource, "") for resource in EVERYTHING),
    ("oidc:ann", "pods", "ns"),
    ("oidc:localhost", "pods", "ns"),
)


def basic(user: str, secret: str = SECRET) -> str:
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


@pytest.fixture(scope="module")
def credentials() -> tls.Credentials:
    return tls.issue("lockstep-system", datetime.now(UTC))


@pytest.fixture(scope="module")
def console(credentials: tls.Credentials) -> Iterator[WebServer]:
    with served(
        cluster(8),
        Rights(*RIGHTS),
        listen="0.0.0.0:0",
        proxy=PROXY,
        tls=tls.server_context(lambda: credentials),
    ) as (server, _):
        yield server


def ask(
    console: WebServer, credentials: tls.Credentials, path: str, method: str = "GET", **headers: str
) -> tuple[int, Any, http.client.HTTPMessage]:
    """Asks over TLS, with a certificate that is checked."""
    trust = ssl.create_default_context(cadata=credentials.ca.decode())
    connection = http.client.HTTPSConnection("localhost", console.port, timeout=20, context=trust)
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request(method, path, headers={"Host": HOST, **named})
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    is_json = reply.headers["Content-Type"] == "application/json" and body
    return reply.status, json.loads(body) if is_json else body, reply.headers


def test_the_proxy_names_the_user(console: WebServer, credentials: tls.Credentials) -> None:
    status, found, _ = ask(
        console, credentials, "/lockstep/api/overview", Authorization=basic("ann")
    )
    assert (status, found["may"]["nodes"]) == (200, False)
    status, found, _ = ask(
        console,
        credentials,
        "/lockstep/api/overview",
        Authorization=basic("bob"),
        X_Forwarded_Groups="dev, ops",
    )
    assert (status, found["may"]["nodes"], found["may"]["queues"]) == (200, True, True)
    assert not found["may"]["what_if"]


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({}, 401, "no token"),
        ({"Authorization": basic("ann", "another secret, as long")}, 401, "secret"),
        ({"Authorization": basic("ann", "")}, 401, "secret"),
        ({"Authorization": "Basic ann"}, 401, "secret"),
        ({"Authorization": "Basic " + base64.b64encode(b"\xff:x").decode()}, 401, "secret"),
        ({"Authorization": "Bearer stranger"}, 401, "rejects"),
        ({"Authorization": basic("")}, 401, "must name a user"),
        ({"Authorization": basic("a" * 253)}, 401, "must name a user"),
        ({"Authorization": basic("ann"), "X-Forwarded-Groups": "g," * 150 + "h," * 51}, 401, "200"),
        ({"X-Forwarded-User": "ann", "X-Forwarded-Groups": "ops"}, 401, "no token"),
    ],
)
def test_strangers_are_refused(
    console: WebServer, credentials: tls.Credentials, headers: dict[str, str], status: int, why: str
) -> None:
    found = ask(console, credentials, "/lockstep/api/overview", **headers)
    assert (found[0], why in found[1]["error"]) == (status, True), found[1]
    assert SECRET not in found[1]["error"]


def test_a_user_with_a_token_needs_no_word_of_the_proxy(
    console: WebServer, credentials: tls.Credentials
) -> None:
    status, found, _ = ask(
        console, credentials, "/lockstep/api/overview", Authorization="Bearer admin"
    )
    assert (status, found["may"]["nodes"]) == (200, True)


def test_new_connections_see_the_renewed_certificate() -> None:
    now = datetime.now(UTC)
    current = first = tls.issue("lockstep-system", now - timedelta(days=80))
    context = tls.server_context(lambda: current)
    with served(cluster(8), Rights(), listen="0.0.0.0:0", proxy=PROXY, tls=context) as (server, _):
        address = ("127.0.0.1", server.port)
        assert ssl.get_server_certificate(address, timeout=20).encode() == first.certificate
        current = tls.renewed(first, "lockstep-system", now)
        assert ssl.get_server_certificate(address, timeout=20).encode() == current.certificate
        assert ask(server, current, "/lockstep/")[0] == 200


def test_what_needs_a_token_says_so(console: WebServer, credentials: tls.Credentials) -> None:
    who = {"Authorization": basic("bob"), "X_Forwarded_Groups": "ops"}
    for path in ("/lockstep/api/may-ask", "/lockstep/api/what-if"):
        method = "POST" if path.endswith("what-if") else "GET"
        status, found, _ = ask(console, credentials, path, method, **who)
        assert status in (400, 403), found
    assert "token" in ask(console, credentials, "/lockstep/api/may-ask", **who)[1]["error"]


def test_the_page_is_served_under_the_path(
    console: WebServer, credentials: tls.Credentials
) -> None:
    status, _, headers = ask(console, credentials, "/lockstep")
    assert (status, headers["Location"]) == (308, "/lockstep/")
    page = ask(console, credentials, "/lockstep/")
    assert page[0] == 200
    assert page[1] == ask(console, credentials, "/")[1]  # of a proxy that takes the path away
    assert ask(console, credentials, "/lockstep/console.js")[0] == 200
    assert ask(console, credentials, "/lockstepconsole.js")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": f"{HOST}:443", "Origin": f"https://{HOST}"}, 401),
        ({"Origin": "http://localhost:9480"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": f"{HOST}:8443"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": f"https://{HOST}.evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_a_page_of_another_site_cannot_use_the_login(headers: dict[str, str], status: int) -> None:
    request = HttpRequest("POST", "/lockstep/api/what-if", {}, headers={"Host": HOST, **headers})
    if status == 401:
        check(request, PROXY)
        assert request.path == "/api/what-if"
        return
    with pytest.raises(RequestRefused) as refused:
        check(request, PROXY)
    assert refused.value.status == status


def test_without_a_prefix_kubernetes_own_names_are_refused() -> None:
    headers = {"Authorization": basic("ann"), "X-Forwarded-Groups": "ops,system:masters"}
    request = HttpRequest("GET", "/", {}, headers=headers)
    with pytest.raises(RequestRefused, match="system:"):
        FrontProxy(PROXY.url, SECRET.encode()).user(request)
    found = PROXY.user(request)
    assert found is not None
    assert found.groups[-1] == "system:authenticated"
    assert not any(each.startswith("system:") for each in (found.user, *found.groups[:-1]))


def test_as_many_groups_and_characters_as_are_allowed() -> None:
    headers = {"Authorization": basic("a" * 248), "X-Forwarded-Groups": "g," * 200}
    found = PROXY.user(HttpRequest("GET", "/", {}, headers=headers))
    assert found is not None
    assert (len(found.user), len(found.groups)) == (253, 201)


def test_no_secret_no_word() -> None:
    headers = {"Authorization": basic("ann", "")}
    assert FrontProxy(PROXY.url).user(HttpRequest("GET", "/", {}, headers=headers)) is None


@pytest.mark.parametrize("text", ["http://a", "gpus.example.org", "https://", "https://u@a", "https://a?b", "https://[a"])  # fmt: skip
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="https://HOST"):
        https_url(text)


def test_addresses() -> None:
    proxy = FrontProxy(https_url("https://a.example:443/gpus/"))
    assert (proxy.host, proxy.path) == ("a.example", "/gpus")
    assert FrontProxy(https_url("https://a.example:8443")).host == "a.example:8443"


def test_secrets(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(ValueError, match=r"--console-proxy-secret .*secret: No such file"):
        secret("--console-proxy-secret", str(file), SHORTEST_SECRET)
    file.write_text("short\n")
    with pytest.raises(ValueError, match="needs at least 16") as refused:
        secret("--console-proxy-secret", str(file), SHORTEST_SECRET)
    assert "short" not in str(refused.value)
    file.write_text("x" * 16)
    assert secret("--console-proxy-secret", str(file), SHORTEST_SECRET) == b"x" * 16
    file.write_text(f"{SECRET}\n")
    assert secret("--console-proxy-secret", str(file), SHORTEST_SECRET) == SECRET.encode()


def test_the_network_is_reached_over_tls_only() -> None:
    with pytest.raises(ConsoleUnservable, match="without --console-url"), served([], listen="0.0.0.0:0"):  # fmt: skip
        pass
    with pytest.raises(ConsoleUnservable), served([], listen="0.0.0.0:0", proxy=PROXY):
        pass


@contextmanager
def front(port: int, credentials: tls.Credentials) -> Iterator[int]:
    """A proxy before the console at this port that has logged ann in: its own word is in place of the user's. Ends when
    its clients have."""
    trust = ssl.create_default_context(cadata=credentials.ca.decode())

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with closing(
                http.client.HTTPSConnection("localhost", port, timeout=60, context=trust)
            ) as console:
                console.request(
                    "GET", self.path, headers={"Host": HOST, "Authorization": basic("ann")}
                )
                found = console.getresponse()
                self.send_response(found.status)
                self.send_header("Content-Type", found.headers["Content-Type"])
                self.end_headers()
                with suppress(ConnectionError):  # the browser has left
                    while piece := found.read1(1 << 16):
                        self.wfile.write(piece)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # so that server_close() waits for them

    with Server(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_a_browser_opens_it_without_a_token(
    console: WebServer, credentials: tls.Credentials, tmp_path: Path
) -> None:
    with front(console.port, credentials) as port, Browser.started(tmp_path) as browser:
        page = browser.page(f"http://localhost:{port}/lockstep/", width=1200, height=800)
        page.until("document.getElementById('state').textContent.startsWith('live')")
        page.until("document.querySelectorAll('#body tbody tr').length > 0")
        assert page.value("document.getElementById('login').hidden")
        assert not page.errors


@pytest.mark.slow
def test_a_real_scheduler_takes_the_flags(tmp_path: Path) -> None:
    file, port = tmp_path / "secret", free_port()
    file.write_text(SECRET)
    flags = [
        f"--console-listen=0.0.0.0:{port}",
        f"--console-url={PROXY.url}",
        f"--console-proxy-secret={file}",
    ]
    with FaultyCluster([], flags=flags) as cluster:
        cluster.start_api()
        cluster.start_scheduler()
        cluster.wait_for_scheduler()
        trust = ssl.create_default_context(cafile=cluster.ca_file)
        for given in (f"Bearer {cluster.token_file.read_text()}", basic("ann")):
            request = urllib.request.Request(
                f"https://localhost:{port}/lockstep/api/overview",
                headers={"Host": HOST, "Authorization": given},
            )
            with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
                assert "may" in json.load(answer)
