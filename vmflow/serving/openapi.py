"""The description of a served session as OpenAPI 3.1, with a schema of its inputs."""

from __future__ import annotations

from typing import Any, Final

from vmflow.dtypes import BOOL, FLOATING, finfo, iinfo

from .bodies import JSON, NPY, SAFETENSORS
from .problems import MEDIA_TYPE
from .session import InferenceSession
from .specs import Dim, Signature, TensorSpec

_PROBLEMS: Final = {
    400: "The body is not of its declared kind, or a header is malformed.",
    406: "The answer cannot be given in any of the kinds that are accepted.",
    408: "The body has not arrived in time.",
    413: "The body is larger than inputs of this session can be.",
    415: "The body is of a kind that is not taken.",
    422: "The inputs do not fit the session.",
    500: "The model failed for these inputs.",
    503: "Too many requests wait, or the server is starting or ending; Retry-After says when to try again.",
    504: "The deadline has passed.",
}

_FOREIGN: Final = "The request comes from a page of another origin, or under a name that is not the server's."

# The pattern of the positive decimal numbers that `RequestScope` takes.
_SECONDS: Final = "^(?=.*[1-9])[0-9]{1,9}(\\.[0-9]{0,9})?$"


def description(session: InferenceSession, most: int, paths: list[str]) -> dict[str, Any]:
    """Return the OpenAPI document of a session.

    Args:
        session: the served session.
        most: the most bytes of a body.
        paths: the paths that exist.
    """
    described = {
        "/predict": {"post": _post(session, most, "The result for one sample.", _RESULT)},
        "/stream": {"post": _post(session, most, "The chunks for one sample, as server-sent events.", _EVENTS)},
        "/live": {"get": _get("Whether the process is alive.", {200: "It is."})},
        "/ready": {"get": _get("Whether requests are taken.", {200: "They are.", 503: "Not yet, or not any more."})},
        "/stats": {"get": _get("Counts and sizes at this moment.", {200: "As JSON."})},
        "/metrics": {
            "get": _get("The same for Prometheus.", {200: "As text.", 501: "prometheus-client is not installed."})
        },
        "/openapi.json": {"get": _get("This document.", {200: "As JSON."})},
        "/drain": {
            "post": _get("Take no more requests, and finish the others.", {200: "All have ended.", 403: _FOREIGN})
        },
        "/": {"get": _get("A page for people.", {200: "As HTML."})},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": session.name, "version": str(session.version)},
        "paths": {path: value for path, value in described.items() if path in paths},
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "headers": {"RequestID": _header("The name of the request.")},
        },
    }


def _post(session: InferenceSession, most: int, summary: str, answer: dict[str, Any]) -> dict[str, Any]:
    signature = session.signature
    content: dict[str, Any] = {
        JSON: {"schema": _body(signature)},
        SAFETENSORS: {"schema": _binary("A safetensors file: the inputs by name, or by place as 0, 1 and so on.")},
    }
    if len(signature.specs) == 1:
        content[NPY] = {"schema": _binary("An npy file with the input.")}
    responses = {"200": answer}
    for status, about in _PROBLEMS.items():
        headers = {"Retry-After": _header("Seconds.")} if status == 503 else {}
        responses[str(status)] = {
            "description": about,
            "headers": headers,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return {
        "summary": summary,
        "parameters": [
            _parameter("X-Request-Timeout", "Seconds in which the answer is wanted.", pattern=_SECONDS),
            _parameter(
                "X-Request-ID",
                "A name for the request: up to 128 letters, digits and ._~:+/=@-; anything else is passed over.",
            ),
        ],
        "requestBody": {"required": True, "description": f"At most {most} bytes.", "content": content},
        "responses": responses,
    }


def _get(summary: str, answers: dict[int, str]) -> dict[str, Any]:
    return {
        "summary": summary,
        "responses": {str(status): {"description": about} for status, about in answers.items()},
    }


def _parameter(name: str, about: str, **schema: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": about,
        "schema": {"type": "string", **schema},
    }


def _header(about: str) -> dict[str, Any]:
    return {"description": about, "schema": {"type": "string"}}


def _binary(about: str) -> dict[str, Any]:
    return {"type": "string", "format": "binary", "description": about}


def _body(signature: Signature) -> dict[str, Any]:
    schemas = [_array(spec) for spec in signature.specs]
    if signature.single:
        inputs = schemas[0]
    elif signature.named:
        inputs = _object(dict(zip(signature.names, schemas, strict=True)))
    else:
        inputs = {"type": "array", "prefixItems": schemas, "minItems": len(schemas), "maxItems": len(schemas)}
    return _object({"inputs": inputs})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _array(spec: TensorSpec) -> dict[str, Any]:
    """Return the schema of an input in a JSON body."""
    if spec.dtype.category == BOOL:
        schema: dict[str, Any] = {"type": "boolean"}
    elif spec.dtype.category < FLOATING:
        whole = iinfo(spec.dtype)
        schema = {"type": ["integer", "boolean"], "minimum": whole.min, "maximum": whole.max}
    else:
        schema = {"type": ["number", "boolean"]}
        if spec.finite:
            real = finfo(spec.dtype)
            schema |= {"minimum": real.min, "maximum": real.max}
    for size in reversed(spec.shape):
        if isinstance(size, Dim):
            bounds: dict[str, Any] = {"minItems": 1, "maxItems": size.sizes[-1], "title": size.name}
        else:
            bounds = {"minItems": size, "maxItems": size}
        schema = {"type": "array", "items": schema, **bounds}
    return {**schema, "description": f"{spec.dtype.name} of shape {spec.shown()}"}


_RESULT: Final[dict[str, Any]] = {
    "description": "The result; nan and infinities are null in JSON.",
    "headers": {"X-Request-ID": {"$ref": "#/components/headers/RequestID"}},
    "content": {
        JSON: {"schema": {"type": "object", "properties": {"outputs": {}}, "required": ["outputs"]}},
        NPY: {"schema": _binary("If it is one array.")},
        SAFETENSORS: {"schema": _binary("The arrays by name.")},
    },
}

_EVENTS: Final[dict[str, Any]] = {
    "description": (
        "An event for each chunk, with its JSON as data; then one named end, or one named error with a problem."
    ),
    "headers": {"X-Request-ID": {"$ref": "#/components/headers/RequestID"}},
    "content": {"text/event-stream": {}},
}

_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "retry_after": {"type": "number"},
    },
    "required": ["title", "status", "detail"],
}
