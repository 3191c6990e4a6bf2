"""A proxy before the console: a team opens the console at its address, and it may log the users in.

A user is known by a bearer token, which the proxy may add: an OpenID Connect proxy whose issuer the API server trusts.
Else the proxy sends the user's name and a secret of its own by HTTP basic authentication, and the groups in
X-Forwarded-Groups, as oauth2-proxy does. What the user may see is always the API server's answer.
"""

import base64
import binascii
import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from central.model.identity import Identity
from protos.common.http_server import HttpRequest, RequestRefused

SHORTEST_SECRET = 16  # characters
GROUPS_MOST, NAME_MOST = 200, 253  # of a user; characters
EVERYBODY = "system:authenticated"  # the API server's group of all who have logged in


@dataclass(frozen=True, slots=True)
class FrontProxy:
    url: str  # at which users open the console, without a slash at its end
    secret: bytes = b""  # b"": users have tokens
    prefix: str = ""  # of the users and groups that the proxy names

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.removesuffix(":443")

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    def user(self, request: HttpRequest) -> Identity | None:
        """Returns the user that the proxy names; None: it names none. Raises RequestRefused."""
        scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
        if not self.secret or scheme.lower() != "basic":
            return None
        try:
            name, _, secret = base64.b64decode(sent, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name, secret = "", ""
        if not hmac.compare_digest(secret.encode(), self.secret):
            raise RequestRefused(401, "the proxy's secret is not that of --console-proxy-secret")
        groups = [each.strip() for each in request.headers.get("X-Forwarded-Groups", "").split(",")]
        named = [self.prefix + each for each in (name, *filter(None, groups))]
        if not name or len(named) > GROUPS_MOST + 1 or max(map(len, named)) > NAME_MOST:
            raise RequestRefused(
                401,
                f"the proxy must name a user and at most {GROUPS_MOST} groups, each in {NAME_MOST} characters",
            )
        if any(each.startswith("system:") for each in named):
            raise RequestRefused(403, "names that begin with system: are Kubernetes' own")
        return Identity(named[0], groups=(*named[1:], EVERYBODY))
