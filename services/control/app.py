"""The HTTP interface put together."""

from __future__ import annotations

import threading
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.requests import Request
from starlette.responses import JSONResponse

from services.control.api import (
    as_of,
    audit,
    bulk,
    destination_schema,
    destinations,
    health,
    lake_health,
    operations,
    pipelines,
    proposals,
    rejected,
    retention,
    tokens,
    upkeep,
    work,
    writes,
)
from services.control.api import version as build_of
from services.control.page import add, assets, errors, incidents, live, login, records
from services.control.page import bulk as bulk_page
from services.control.page import health as health_page
from services.control.page import proposals as proposals_page
from services.control.page import tokens as tokens_page
from services.control.page import work as work_page
from services.control.page.problem_pages import ProblemPages
from services.control.page.urls import OF_ONE
from services.control.store.idempotency_store import Answers
from services.control.web import problems
from services.control.web.context import Sources
from services.control.web.guard import Guard
from services.control.web.head import HeadMiddleware
from services.control.web.idempotency import IdempotencyMiddleware
from services.control.web.middleware import GuardMiddleware
from services.control.web.problems import ProblemDocument, declared
from services.control.web.streams import Streams
from services.control.web.ttl_cache import TtlCache

EVERYWHERE = (
    "invalid", "unauthorized", "forbidden", "method_not_allowed", "too_many_failures", "unavailable", "defect",
)  # fmt: skip
"""Kinds that any route may answer with; 405 to another method than the route's own."""

OF_A_PIPELINE = (
    add.router, bulk_page.router, records.router, work_page.router, proposals_page.router, live.router,
)  # fmt: skip
"""Pages of the only pipeline, and of each below its name; the last takes whatever stands behind a destination."""

DESCRIPTION = (
    "Destinations as resources. Errors are RFC 9457 problem documents; docs/reference/errors.md explains each."
)


def build(sources: Sources, guard: Guard) -> FastAPI:
    app = _assembled()
    furnish(app, sources, guard)
    return app


def furnish(app: FastAPI, sources: Sources, guard: Guard) -> None:
    """Give an application what it shows and who may see it, in place of what it had."""
    app.state.sources, app.state.guard = sources, guard
    app.state.once, app.state.answers = TtlCache(live.EVERY_S / 2), Answers()
    app.state.streams = Streams()


def _assembled() -> FastAPI:
    # FastAPI's own documentation pages load scripts from elsewhere, and it would make the schema on the event loop.
    app = FastAPI(
        title="Viaduck",
        version="1",
        description=DESCRIPTION,
        openapi_url=None,
        generate_unique_id_function=_operation_id,
    )
    app.add_route("/openapi.json", _schema, include_in_schema=False)
    for middleware in (IdempotencyMiddleware, GuardMiddleware, ProblemPages, HeadMiddleware):  # the last is outermost
        app.add_middleware(middleware)
    problems.install(app)
    common = declared(*EVERYWHERE)
    routers = (build_of, pipelines, destinations, writes, upkeep, bulk, proposals, operations, work, rejected, tokens,
               audit, lake_health, retention, as_of, destination_schema)  # fmt: skip
    for router in (each.router for each in routers):
        app.include_router(router, responses={**common})
    for router in (
        health.router,
        assets.router,
        login.router,
        errors.router,
        health_page.router,
        tokens_page.router,
        incidents.router,
        live.overview,
        *OF_A_PIPELINE,
    ):
        app.include_router(router)
    for router in OF_A_PIPELINE:
        app.include_router(router, prefix=OF_ONE)
    _describe(app)
    for _ in iter_route_contexts(app.routes):  # builds what FastAPI would build at the first requests
        pass
    return app


def _schema(request: Request) -> JSONResponse:
    """The interface's own description, on a thread: it takes a quarter of a second, when it is asked for first."""
    return JSONResponse(request.app.openapi())


def _operation_id(route: APIRoute) -> str:
    return route.name


def _describe(app: FastAPI) -> None:
    """Every problem refers to one schema, which no route's own model brings in."""
    plain, making = app.openapi, threading.Lock()

    def described() -> dict[str, Any]:
        with making:
            return whole(plain())

    def whole(schema: dict[str, Any]) -> dict[str, Any]:
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        if "ProblemDocument" not in schemas:
            made = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(made.pop("$defs", {}))
            schemas["ProblemDocument"] = made
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{}, {"token": []}]
        return schema

    app.openapi = described  # type: ignore[method-assign]
