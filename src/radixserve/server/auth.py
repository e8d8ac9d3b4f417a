"""The API key. It guards every path but a few, known or not, before anything looks at the request.

There is no list of guarded routes that a new route could be missing from, and no prefix that a path could be spelled around. Open
are the liveness probe and the files of the live page, which hold no data: the page asks for the key and sends it
along. The key never appears in a reply or a log.
"""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from radixserve.server import live_page
from radixserve.server.errors import HttpError, error_reply

OPEN_PATHS = frozenset({"/health", *live_page.PATHS})


class ApiKeyMiddleware:
    """Asks for `Authorization: Bearer KEY`; 401 without it."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self.app = app
        self._expected = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._holds_key(scope):
            await self.app(scope, receive, send)
        else:
            message = "the API key is missing or wrong: send it in the header Authorization: Bearer KEY"
            await error_reply(HttpError(401, message, code="invalid_api_key"))(scope, receive, send)

    def _holds_key(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                return scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self._expected)
        return False
