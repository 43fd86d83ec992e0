"""The style sheet and the script of the pages: files of this package, under addresses that change with their content."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

_FOLDER: Final = Path(__file__).parent / "templates"
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
router = APIRouter()


class _Asset:
    def __init__(self, name: str, media_type: str) -> None:
        self.content = (_FOLDER / name).read_bytes()
        self.media_type = media_type
        self.path = f"/assets/{blake2b(self.content, digest_size=6).hexdigest()}/{name}"

    async def answer(self) -> Response:
        return Response(self.content, media_type=self.media_type, headers=_FOR_EVER)


STYLE: Final = _Asset("style.css", "text/css")
SCRIPT: Final = _Asset("live.js", "text/javascript")
for _asset in (STYLE, SCRIPT):
    router.add_api_route(_asset.path, _asset.answer, include_in_schema=False, response_class=Response)
