"""How the service is, and what it can do."""

from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

import anabranch
from anabranch.server.access import Public
from anabranch.server.routing import ForAnyone, get_service, make_router

__all__ = ["router"]

router = make_router("status")
ForEverybody = Annotated[None, Depends(Public())]


class Health(BaseModel):
    status: str
    version: str


@router.get("/health")
def get_health(_: ForEverybody, request: Request) -> Health:
    """Whether the service answers, and its metadata with it."""
    get_service(request).database.read("SELECT 1")
    return Health(status="ok", version=anabranch.__version__)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The numbers"}},
)
def get_metrics(call: ForAnyone) -> Response:
    """What the service counts, for Prometheus; needs a token that is bound to no project."""
    return Response(call.service.metrics.show(), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", include_in_schema=False)
def get_openapi(_: ForEverybody, request: Request) -> JSONResponse:
    """What the service can do, for programs."""
    described: dict[str, Any] = request.app.openapi()
    return JSONResponse(described)


@router.get("/docs", include_in_schema=False)
def get_docs(_: ForEverybody) -> HTMLResponse:
    """What the service can do, for people."""
    return get_swagger_ui_html(openapi_url="/openapi.json", title="Anabranch")
