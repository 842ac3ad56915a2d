"""The ASGI application: the routes of one service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import FastAPI, Request, Response

import anabranch
from anabranch.server import (
    audit,
    branches,
    buckets,
    exports,
    files,
    history,
    imports,
    jobs,
    merges,
    projects,
    rows,
    status,
    tables,
    tokens,
)
from anabranch.server.envelope import add_handlers, answer_error
from anabranch.server.middleware import LimitingMiddleware, WarningMiddleware
from anabranch.server.service import Service, open_service
from anabranch.server.settings import Settings
from anabranch.server.status import MetricsMiddleware
from anabranch.server.ui.responses import SecurityHeadersMiddleware, is_below
from anabranch.server.ui.service_pages import UI_PATH, ServiceSite
from anabranch.server.ui.storage import Workshop

_ROUTERS = (
    status.router,
    projects.router,
    branches.router,
    buckets.router,
    tables.router,
    rows.router,
    imports.router,
    exports.router,
    files.router,
    jobs.router,
    history.router,
    history.tag_router,
    merges.router,
    tokens.router,
    audit.router,
)


def create_app(settings: Settings, *, service: Service | None = None) -> FastAPI:
    """Return the service as an ASGI application, which closes the service when it stops."""
    opened = service or open_service(settings)

    workshop = Workshop()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # The threads in which FastAPI runs `def` routes.
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.limits.workers
        yield
        workshop.close()
        opened.close()

    app = FastAPI(
        title="Anabranch",
        summary="Dev branches over a lake of Lance tables",
        version=anabranch.__version__,
        lifespan=lifespan,
        # The routes of `status` replace these: the pages of FastAPI load Swagger UI from another host.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = opened
    app.state.workshop = workshop
    site = ServiceSite(opened)

    def answer(request: Request, error: Exception) -> Response | None:
        """Return an error of the web UI as a page, None for other paths."""
        return site.answer_failure(request, error) if is_below(UI_PATH, request.url.path) else None

    add_handlers(app, answer=answer)
    app.add_middleware(WarningMiddleware)
    app.add_middleware(
        LimitingMiddleware,
        limits=settings.limits,
        find_token=opened.tokens.find,
        find_visitor=site.find_token,
        answer=lambda request, error: answer(request, error) or answer_error(error),
    )
    # The middleware that is added last runs first, so the metrics also count requests that the limits refuse.
    app.add_middleware(MetricsMiddleware, metrics=opened.metrics)
    app.add_middleware(SecurityHeadersMiddleware, path=UI_PATH)
    for router in _ROUTERS:
        # Not `include_router`: matching a path against nested routers takes three times as long.
        app.router.routes.extend(router.routes)
    app.router.routes.extend(site.all_routes())
    return app
