"""A model in an existing FastAPI application: a few lines, and requests are batched, cancelled and drained.

pip install '.[serve]' fastapi
uvicorn --app-dir examples fastapi_app:app

curl -d '[[1, 2, 3, 4]]' -H 'content-type: application/json' localhost:8000/classify
"""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

import vmflow as flow
from vmflow import nn, serving

flow.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(1)).eval()
session = serving.InferenceSession(model, inputs=serving.TensorSpec((4,)), timeout=1.0)

# The session starts with the application; on SIGTERM it finishes its requests before the server stops.
# No redirects from /classify/: they would lead to any host that a request names.
app = FastAPI(lifespan=serving.lifespan(session), redirect_slashes=False)
app.add_middleware(serving.ErrorResponses)  # full queues are answered with 503, late results with 504
app.add_middleware(serving.RequestScope)  # X-Request-Timeout is obeyed, and requests have names and traces
app.add_middleware(serving.DisconnectScope)  # requests of disconnected clients are cancelled


@app.post("/classify")
async def classify(samples: list[list[float]]) -> list[list[float]]:
    """The probabilities of three classes, for each sample.

    Each sample is a request of its own to the session; requests that wait at the same time are computed together.
    """
    results = await asyncio.gather(*[session.run(sample) for sample in samples])
    return [result.tolist() for result in results]


@app.get("/ready")
async def ready() -> dict[str, bool]:
    """Whether the model takes requests."""
    return {"ready": session.state == "ready"}
