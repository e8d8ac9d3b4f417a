"""What a browser may do here for the pages that its user visits, where no API key tells clients from others.

Who can't connect may still have a page, which a user's browser opens and which connects from there. Browsers say whose page sends a
request, and keep it from reading what comes back, unless the page's own name is made to mean this machine (DNS rebinding).
"""

import ipaddress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from radixserve.server.errors import HttpError, error_reply

READING = frozenset({"GET", "HEAD", "OPTIONS"})


class BrowserGuardMiddleware:
    """Refuses (403) what a page of another site sends; and other names than its own, where only this machine reaches it."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        """`host`: the address that the server listens on."""
        self.app = app
        self._local = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
        else:
            await error_reply(refusal, scope["path"])(scope, receive, send)

    def _refusal(self, scope: Scope) -> HttpError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._local and host and not _is_own_name(host):
            message = (
                f"the server was asked for as {host[:80]!r}, and answers to localhost and IP addresses alone: ask it by one of "
                "them, have the proxy before it send one as Host, or set --api-key"
            )
            return HttpError(403, message, code="unknown_host")
        if scope["method"] not in READING and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return HttpError(
                403, "a page of another site may not use a server without an API key: set --api-key", code="cross_site"
            )
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. A name other than localhost counts as reachable."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _is_own_name(host: str) -> bool:
    """Whether a Host header holds an address or localhost: no other site has these for a name."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    name = name.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost") or _address(name) is not None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
