"""A FastAPI application with one route, served by uvicorn: what the web stack costs without a service behind it."""

import sys

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

app = FastAPI()


@app.get("/health")
async def get_health() -> JSONResponse:
    return JSONResponse({"status": "ok", "version": "0"})


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", server_header=False)
