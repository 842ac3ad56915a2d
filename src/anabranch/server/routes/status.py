"""Health, metrics and the description of the service."""

from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

import anabranch
from anabranch.errors import StorageUnavailableError
from anabranch.server.access import Public
from anabranch.server.routing import ForAnyone, get_service, make_router

__all__ = ["router"]

router = make_router("status")
Anyone = Annotated[None, Depends(Public())]


class Health(BaseModel):
    status: str
    version: str


# Rendered once: the answer is the same every time.
_HEALTHY = JSONResponse(Health(status="ok", version=anabranch.__version__).model_dump())


@router.get("/health", response_model=Health)
async def get_health(_: Anyone, request: Request) -> Response:
    """Report that the service answers and can read its metadata; 503 if it cannot."""
    if not await get_service(request).health.is_healthy():
        raise StorageUnavailableError("the metadata database cannot be read", hint="see the log of the service")
    return _HEALTHY


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The numbers"}},
)
def get_metrics(call: ForAnyone) -> Response:
    """Return the metrics in the format of Prometheus; needs a token that is bound to no project."""
    return Response(call.service.metrics.show(), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", include_in_schema=False)
def get_openapi(_: Anyone, request: Request) -> JSONResponse:
    """Describe the routes as OpenAPI."""
    described: dict[str, Any] = request.app.openapi()
    return JSONResponse(described)


@router.get("/docs", include_in_schema=False)
def get_docs(_: Anyone) -> HTMLResponse:
    """Show the routes as a web page."""
    return get_swagger_ui_html(openapi_url="/openapi.json", title="Anabranch")
