"""The description of the archive's pages (OpenAPI 3.1, made from the routes)."""

from __future__ import annotations

from tiered.http.archive.table import ROUTES
from tiered.http.routes import PageRoute, Parameter, ParameterKind
from tiered.version import __version__


def openapi() -> dict[str, object]:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Archived RocketMQ messages, read only",
            "version": __version__,
            "description": "Every answer is JSON. A failure is an object error with status, message and fix. Where a failure"
            " comes after the beginning of a long answer, the object ends with a member error.",
        },
        "paths": {route.template: {"get": _operation(route)} for route in ROUTES},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR, "Message": _MESSAGE, "Topic": _TOPIC, "Queue": _QUEUE},
        },
    }


def _operation(route: PageRoute) -> dict[str, object]:
    kind = "text/html" if route.name == "page" else "application/json"
    good: dict[str, object] = {
        "description": route.summary,
        "content": {kind: {"schema": _RESULTS[route.name]}},
    }
    bad = {"description": "what was wrong", "content": {"application/json": {"schema": _ref("Error")}}}
    made: dict[str, object] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [_parameter(parameter) for parameter in route.parameters],
        "responses": {"200": good, "default": bad},
    }
    if route.template.startswith("/v1/"):
        made["security"] = [{"bearer": []}, {}]
    return made


def _parameter(parameter: Parameter) -> dict[str, object]:
    schema: dict[str, object] = {"type": parameter.kind.value}
    if parameter.kind is ParameterKind.WHOLE:
        schema |= {"minimum": parameter.low, "maximum": parameter.high}
    if parameter.kind is ParameterKind.TEXT:
        schema["minLength"] = 1
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.required,
        "description": parameter.description,
        "schema": schema,
    }


def _ref(name: str) -> dict[str, object]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: str, **properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _list(name: str) -> dict[str, object]:
    return {"type": "array", "items": _ref(name)}


def _next(kind: str) -> dict[str, object]:
    return {"type": kind, "description": "there is more behind this one: give it as after"}


_WHOLE: dict[str, object] = {"type": "integer"}
_STRING: dict[str, object] = {"type": "string"}
_FLAG: dict[str, object] = {"type": "boolean"}
_TIME: dict[str, object] = {"type": ["integer", "null"], "description": "ms since 1970"}
_MAYBE: dict[str, object] = {"type": ["string", "null"]}

_ERROR = _object(
    "error",
    error=_object("status message fix", status=_WHOLE, message=_STRING, fix=_STRING, parameter=_STRING),
)
_TOPIC = _object(
    "topic queues messages bytes oldest newest",
    topic=_STRING, queues=_WHOLE, messages=_WHOLE, bytes=_WHOLE, oldest=_TIME, newest=_TIME,
)  # fmt: skip
_QUEUE = _object(
    "queue_id min_offset max_offset messages bytes generation oldest newest",
    queue_id=_WHOLE, min_offset=_WHOLE, max_offset=_WHOLE, messages=_WHOLE, bytes=_WHOLE,
    generation={"type": ["integer", "null"]}, oldest=_TIME, newest=_TIME,
)  # fmt: skip
_MESSAGE = _object(
    "topic queue_id queue_offset store_timestamp born_timestamp tags keys unique_key msg_id properties body_size body_base64",
    topic=_STRING, queue_id=_WHOLE, queue_offset=_WHOLE, store_timestamp=_WHOLE, born_timestamp=_WHOLE, tags=_MAYBE,
    keys={"type": "array", "items": _STRING}, unique_key=_MAYBE, msg_id=_STRING,
    properties={"type": "object", "additionalProperties": _STRING}, born_host=_STRING, store_host=_STRING,
    sys_flag=_WHOLE, flag=_WHOLE, reconsume_times=_WHOLE, prepared_transaction_offset=_WHOLE, physical_offset=_WHOLE,
    body_crc=_WHOLE, body_size=_WHOLE, compressed={**_FLAG, "description": "the body is as the client compressed it"},
    body_base64=_STRING, body={**_STRING, "description": "the body as text; only where it is UTF-8"},
)  # fmt: skip
_STALE: dict[str, object] = {
    **_FLAG,
    "description": "the object store does not answer: this is what was known before",
}
_FAILURE = {
    **_object("status message fix", status=_WHOLE, message=_STRING, fix=_STRING),
    "description": "why it ends early",
}
_RESULTS: dict[str, dict[str, object]] = {
    "page": _STRING,
    "openapi": {"type": "object"},
    "topics": _object("stale topics", stale=_STALE, topics=_list("Topic"), next=_next("string")),
    "queues": _object(
        "stale topic queues", stale=_STALE, topic=_STRING, queues=_list("Queue"), next=_next("integer")
    ),
    "messages": _object(
        "topic queue_id min_offset max_offset messages next_offset end",
        topic=_STRING, queue_id=_WHOLE, min_offset=_WHOLE, max_offset=_WHOLE, messages=_list("Message"),
        next_offset=_WHOLE, end={**_FLAG, "description": "nothing more is archived now"}, error=_FAILURE,
    ),
    "compacted": _object(
        "stale topic queue_id commit min_offset messages next_offset end",
        stale=_STALE, topic=_STRING, queue_id=_WHOLE, min_offset=_WHOLE, messages=_list("Message"), next_offset=_WHOLE,
        commit={**_WHOLE, "description": "what is kept is decided by messages up to this one; pages may have different ones"},
        end={**_FLAG, "description": "nothing more is archived at this commit"}, error=_FAILURE,
    ),
    "query": _object("topic key messages", topic=_STRING, key=_STRING, messages=_list("Message")),
}  # fmt: skip
