"""The style sheet and the script of the pages: files of this package, under addresses that change with their content."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER: Final = Path(__file__).parent / "templates"
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


class _Asset:
    def __init__(self, name: str, media_type: str) -> None:
        self.content = (_FOLDER / name).read_bytes()
        self.media_type = media_type
        self.path = f"/assets/{blake2b(self.content, digest_size=6).hexdigest()}/{name}"

    async def answer(self, request: Request) -> Response:
        return Response(self.content, media_type=self.media_type, headers=_FOR_EVER)


STYLE: Final = _Asset("style.css", "text/css")
SCRIPT: Final = _Asset("live.js", "text/javascript")


def routes() -> list[Route]:
    """Return a route for each of them."""
    return [Route(asset.path, asset.answer) for asset in (STYLE, SCRIPT)]
