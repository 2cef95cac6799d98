"""The HTTP interface put together."""

from __future__ import annotations

from fastapi import FastAPI

from services.control.api import health, problems, routes
from services.control.api.access import Access, AccessMiddleware
from services.control.api.state import Sources
from services.control.page import live


def build(sources: Sources, access: Access) -> FastAPI:
    # FastAPI's own documentation pages load scripts from elsewhere; the schema itself is served.
    app = FastAPI(title="Viaduck", version="1", docs_url=None, redoc_url=None)
    app.state.sources = sources
    app.add_middleware(AccessMiddleware, access=access)
    problems.install(app)
    for router in (health.router, routes.router, live.router):
        app.include_router(router)
    return app
