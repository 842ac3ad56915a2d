"""What the service counts, for Prometheus."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Metrics", "MetricsMiddleware"]


class Metrics:
    """The numbers of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self.requests = Counter(
            "anabranch_requests", "Requests that were answered.", (*labels, "status"), registry=self.registry
        )
        self.seconds = Histogram("anabranch_request_seconds", "How long they took.", labels, registry=self.registry)
        self.running = Gauge("anabranch_requests_running", "Requests under way.", registry=self.registry)

    def show(self) -> bytes:
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts every request by its route, not by its path, of which there are too many."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        began = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._metrics.running.track_inprogress():
            try:
                await self._app(scope, receive, noting)
            finally:
                route = getattr(scope.get("route"), "path", "none")
                method = scope["method"] if route != "none" else "any"
                self._metrics.requests.labels(method, route, str(status)).inc()
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - began)
