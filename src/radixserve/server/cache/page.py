"""The live page: static files in `ui/`, served as they are. They hold no data; the page asks `/cache/…` for it."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).parent / "ui"

PATHS = frozenset({"/", "/ui", "/ui/", *(f"/ui/{path.relative_to(FOLDER).as_posix()}" for path in FOLDER.rglob("*"))})
"""Every path of the page."""


async def to_page(request: Request) -> Response:
    """Sends a browser to the page. The place is relative, so that it holds behind a proxy too."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"ui/{query}")


ROUTES: list[BaseRoute] = [
    Route("/", to_page),
    Route("/ui", to_page),
    Mount("/ui", StaticFiles(directory=FOLDER, html=True, check_dir=False)),
]
