"""The API key. It guards every path but a few, known or not, before anything looks at the request.

There is no list of guarded routes that a new route could be missing from, and no prefix that a path could be spelled around. Open
are the liveness probe and the files of the live page, which hold no data: the page asks for the key and sends it
along. The key never appears in a reply or a log.
"""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from radixserve.server.cache import page as live_page
from radixserve.server.errors import HttpError, error_reply

OPEN_PATHS = frozenset({"/health", *live_page.PATHS})


class ApiKeyMiddleware:
    """Asks for `Authorization: Bearer KEY`, or `x-api-key: KEY` as Anthropic's clients send it; 401 without it."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self.app = app
        self._expected = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._holds_key(scope):
            await self.app(scope, receive, send)
        else:
            message = "the API key is missing or wrong: send it in the header Authorization: Bearer KEY, or x-api-key: KEY"
            await error_reply(HttpError(401, message, code="invalid_api_key"), scope)(scope, receive, send)

    def _holds_key(self, scope: Scope) -> bool:
        return any(hmac.compare_digest(_key(name, value), self._expected) for name, value in scope["headers"])


def _key(header: bytes, value: bytes) -> bytes:
    """The key that a header holds, if it is one that holds keys."""
    if header == b"x-api-key":
        return value.strip()
    scheme, _, key = value.partition(b" ")
    return key.strip() if header == b"authorization" and scheme.lower() == b"bearer" else b""
