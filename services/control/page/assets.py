"""``/assets``: style, mark, script and three small libraries with their licences; nothing comes from elsewhere."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import FileResponse

from services.control.page.templates import FOLDER
from services.control.web.problems import HttpProblem

router = APIRouter(include_in_schema=False)

FILES = {file.name: file for file in sorted((FOLDER / "assets").iterdir())}
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
FOR_S = 3600


@router.get("/assets/{name}")
def asset(name: str) -> FileResponse:
    file = FILES.get(name)
    if file is None:
        raise HttpProblem("not_found", "there is no such asset")
    kind = TYPES.get(file.suffix, "text/plain; charset=utf-8")
    return FileResponse(file, media_type=kind, headers={"Cache-Control": f"private, max-age={FOR_S}"})
