"""Descriptions of pages (OpenAPI 3.1), made from the routes."""

from __future__ import annotations

from collections.abc import Iterable

from tiered.http.routes import PageRoute, Parameter, ParameterKind
from tiered.version import __version__

Described = dict[str, object]


def described(
    title: str, text: str, operations: Iterable[tuple[PageRoute, Described]], schemas: Described
) -> Described:
    """The whole document."""
    paths: dict[str, Described] = {}
    for route, made in operations:
        paths.setdefault(route.template, {})[route.method.lower()] = made
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__, "description": text},
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }


def operation(route: PageRoute, responses: Described) -> Described:
    """One route with what it may answer, by status."""
    made: Described = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [
            *map(_parameter, route.parameters),
            *(_header(name, text) for name, text in route.headers),
        ],
        "responses": responses,
    }
    if route.body is not None:
        schema: Described = {} if route.body.endswith("octet-stream") else {"type": "object"}
        made["requestBody"] = {"required": True, "content": {route.body: {"schema": schema}}}
    if route.template.startswith("/v1/"):
        made["security"] = [{"bearer": []}, {}]
    return made


def ref(name: str) -> Described:
    """One of the schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(required: str, **properties: Described) -> Described:
    """An object; ``required``: its members that are always there, by name."""
    return {"type": "object", "required": required.split(), "properties": properties}


def listing(name: str) -> Described:
    """A list of one of the schemas."""
    return {"type": "array", "items": ref(name)}


def _parameter(parameter: Parameter) -> Described:
    schema: Described = {"type": parameter.kind.value}
    if parameter.kind is ParameterKind.WHOLE:
        schema |= {"minimum": parameter.low, "maximum": parameter.high}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    elif parameter.kind is ParameterKind.TEXT:
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


def _header(name: str, text: str) -> Described:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": text,
        "schema": {"type": "string"},
    }
