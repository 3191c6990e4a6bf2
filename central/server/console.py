"""Starts the web console, and the process that answers its what-if questions."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack

from central.kube.transport.access_review import AccessReviewer
from central.kube.transport.http_client import Client
from central.kube.transport.token_review import TokenReviewer
from central.server import argtypes, tls
from central.server.grpc.grpc_server import Server
from central.server.optional_part import begin_optional
from central.server.settings import Settings
from central.server.web.front_proxy import SHORTEST_SECRET, FrontProxy
from central.server.web.kube_events import KubeEvents
from central.server.web.web_api import WebApi
from central.server.web.web_server import ConsoleUnservable, WebServer
from central.server.web.what_if_process import WhatIfProcess

PROXY_SECRET = "--console-proxy-secret"
log = logging.getLogger(__name__)


def serve_console(
    settings: Settings,
    client: Client,
    server: Server,
    api: WebApi,
    stack: ExitStack,
    *,
    what_if: WhatIfProcess | None,
) -> None:
    """Serves it until the stack ends, if the flags ask for it and it can be served."""
    if not settings.console_listen:
        return
    reviewer, access = TokenReviewer(client, settings.namespace), AccessReviewer(client)
    api.offers_what_if = what_if is not None
    events = KubeEvents(client.address())

    def make() -> WebServer:
        secure = settings.console_url != ""
        context = tls.server_context(lambda: server.credentials) if secure else None
        return WebServer(
            settings.console_listen,
            api,
            reviewer,
            access,
            what_if=what_if,
            events=events,
            proxy=_proxy(settings),
            tls=context,
        )

    console = begin_optional("web console", make)
    if console is None:
        return
    console.start()
    stack.callback(console.stop)
    log.info("serving the web console at %s", settings.console_listen)


def _proxy(settings: Settings) -> FrontProxy | None:
    """Raises ConsoleUnservable."""
    file, prefix = settings.console_proxy_secret, settings.console_user_prefix
    if not settings.console_url:
        if file:
            raise ConsoleUnservable(
                "--console-proxy-secret: needs --console-url, the proxy's address"
            )
        return None
    try:
        secret = argtypes.secret(PROXY_SECRET, file, SHORTEST_SECRET) if file else b""
    except ValueError as error:
        raise ConsoleUnservable(str(error)) from error
    return FrontProxy(settings.console_url, secret, "" if prefix == "-" else prefix)


def what_if_process(
    settings: Settings, client: Client, server: Server, command: Sequence[str]
) -> WhatIfProcess | None:
    """The process that answers the console's questions; None: it offers none."""
    if not command or not settings.console_what_if_mib:
        return None
    host = settings.listen.rpartition(":")[0]
    reached = "localhost" if host in ("", "0.0.0.0", "[::]") else host
    scheduler = {
        "server": f"{reached}:{server.port}",
        "ca": server.credentials.ca.decode(),
        "server_name": tls.names(settings.namespace)[0],
    }
    mib = min(settings.console_what_if_mib, 1 << 24)
    return WhatIfProcess(command, client.address(), scheduler, memory_mib=mib)
