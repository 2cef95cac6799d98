"""The HTTP interface put together."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.routing import APIRoute

from services.control.api import (
    audit,
    destinations,
    health,
    operations,
    pipelines,
    problems,
    proposals,
    tokens,
    work,
    writes,
)
from services.control.api import version as build_of
from services.control.api.guard import Guard
from services.control.api.head import HeadMiddleware
from services.control.api.idempotency import IdempotencyMiddleware
from services.control.api.middleware import GuardMiddleware
from services.control.api.problems import ProblemDocument, declared
from services.control.api.state import Sources
from services.control.api.streams import Streams
from services.control.idempotency import Answers
from services.control.page import add, assets, errors, live, login
from services.control.page import proposals as proposals_page
from services.control.page.once import Once
from services.control.page.place import OF_ONE
from services.control.page.trouble import ProblemPages

EVERYWHERE = (
    "invalid", "unauthorized", "forbidden", "method_not_allowed", "too_many_failures", "unavailable", "defect",
)  # fmt: skip
"""Kinds that any route may answer with; 405 to another method than the route's own."""

DESCRIPTION = "Destinations as resources. Errors are RFC 9457 problem documents; docs/ERRORS.md explains each."


def build(sources: Sources, guard: Guard) -> FastAPI:
    app = _assembled()
    furnish(app, sources, guard)
    return app


def furnish(app: FastAPI, sources: Sources, guard: Guard) -> None:
    """Give an application what it shows and who may see it, in place of what it had."""
    app.state.sources, app.state.guard = sources, guard
    app.state.once, app.state.answers = Once(live.EVERY_S / 2), Answers()
    app.state.streams = Streams()


def _assembled() -> FastAPI:
    # FastAPI's own documentation pages load scripts from elsewhere; the schema itself is served.
    app = FastAPI(
        title="Viaduck",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
    )
    for middleware in (IdempotencyMiddleware, GuardMiddleware, ProblemPages, HeadMiddleware):  # the last is outermost
        app.add_middleware(middleware)
    problems.install(app)
    common = declared(*EVERYWHERE)
    routers = (build_of, pipelines, destinations, writes, proposals, operations, work, tokens, audit)
    for router in (each.router for each in routers):
        app.include_router(router, responses={**common})
    for router in (
        health.router,
        assets.router,
        login.router,
        errors.router,
        live.overview,
        live.router,
        add.router,
        proposals_page.router,
    ):
        app.include_router(router)
    app.include_router(live.router, prefix=OF_ONE)
    app.include_router(add.router, prefix=OF_ONE)
    app.include_router(proposals_page.router, prefix=OF_ONE)
    _describe(app)
    app.openapi()  # builds what FastAPI would build at the first requests, on several threads at once
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


def _describe(app: FastAPI) -> None:
    """Every problem refers to one schema, which no route's own model brings in."""
    plain = app.openapi

    def described() -> dict[str, object]:
        schema = plain()
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        if "ProblemDocument" not in schemas:
            made = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(made.pop("$defs", {}))
            schemas["ProblemDocument"] = made
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{}, {"token": []}]
        return schema

    app.openapi = described  # type: ignore[method-assign]
