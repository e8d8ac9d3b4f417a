"""What a browser may do here for the pages that its user visits, where no API key tells clients from others.

Who can't connect may still have a page, which a user's browser opens and which connects from there. Browsers say whose page sends a
request, and keep it from reading what comes back, unless the page's own name is made to mean this machine (DNS rebinding).
"""

import ipaddress
from collections.abc import Collection, Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from radixserve.server.errors import HttpError, error_reply

READING = frozenset({"GET", "HEAD", "OPTIONS"})

PORTS = {"http": 80, "https": 443}


class BrowserGuardMiddleware:
    """Refuses (403) what a page of another site sends, and what is sent to a name that isn't the server's."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        """`names`: what the server may be asked for as, apart from localhost and addresses; "*" is any name."""
        self.app = app
        self._names = {name.rstrip(".").lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await error_reply(refusal, scope)(scope, receive, send)

    def _refusal(self, scope: Scope) -> HttpError | None:
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        for host in hosts:
            if not self._is_own_name(host):
                message = (
                    f"the server was asked for as {host[:80]!r}, and answers to localhost and IP addresses alone: allow the name "
                    "with --allowed-host, or set --api-key"
                )
                return HttpError(403, message, code="unknown_host")
        other_site = headers.get("sec-fetch-site") in ("cross-site", "same-site") and scope["method"] not in READING
        if other_site or not all(self._is_own_origin(origin, hosts) for origin in origins):
            message = "a page of another site may not use a server without an API key: set --api-key"
            return HttpError(403, message, code="cross_site")
        return None

    def _is_own_name(self, host: str) -> bool:
        """Whether a Host header holds an address, localhost or an allowed name: no other site has one of these."""
        name = _name(host)
        own = name == "localhost" or name.endswith(".localhost") or _address(name) is not None
        return own or name in self._names or "*" in self._names

    def _is_own_origin(self, origin: str, hosts: Sequence[str]) -> bool:
        """Whether a page came from here: from the very address that it now asks, or, through a proxy, from an allowed name."""
        scheme, separator, host = origin.partition("://")
        if not separator or scheme not in PORTS:
            return False
        name = _name(host)
        return name in self._names or any((name, _port(host, scheme)) == (_name(own), _port(own, scheme)) for own in hosts)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. A name other than localhost counts as reachable."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _name(host: str) -> str:
    """Without the port, of a Host header or an origin."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.rstrip(".").lower()


def _port(host: str, scheme: str) -> str:
    port = host.rpartition("]")[2].partition(":")[2]
    return port or str(PORTS[scheme])


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
