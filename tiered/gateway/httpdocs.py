"""The description of the pages (OpenAPI 3.1, made from the routes) and the page for people."""

from __future__ import annotations

import base64
import hashlib

from tiered.gateway.httproutes import ROUTES, Kind, Parameter, Route
from tiered.version import __version__

_SCRIPT = """
const at = id => document.getElementById(id);
async function ask(path) {
  const token = at("token").value;
  const answer = await fetch(path, token ? {headers: {Authorization: "Bearer " + token}} : {});
  const said = await answer.json();
  if (said.error) throw new Error(said.error.message + ": " + said.error.fix);
  return said;
}
function row(table, cells, act) {
  const line = table.insertRow();
  for (const cell of cells) line.insertCell().textContent = cell ?? "";
  if (act) { line.onclick = act; line.className = "link"; }
}
function table(title, names) {
  at("title").textContent = title;
  const made = at("rows");
  made.textContent = "";
  row(made, names);
  return made;
}
const time = ms => ms === null ? "" : new Date(ms).toISOString();
const say = text => at("said").textContent = text;
const guarded = act => (...given) => act(...given).then(() => say(""), e => say(e.message));
const messages = guarded(async (topic, queue, offset) => {
  const path = `/v1/topics/${encodeURIComponent(topic)}/queues/${queue}/messages?count=50`;
  const said = await ask(path + (offset === undefined ? "" : "&offset=" + offset));
  const made = table(`${topic}/${queue}`, ["offset", "stored", "tag", "keys", "body"]);
  for (const m of said.messages)
    row(made, [m.queue_offset, time(m.store_timestamp), m.tags, m.keys.join(" "), (m.body ?? m.body_base64).slice(0, 200)]);
  if (!said.end) row(made, ["more"], () => messages(topic, queue, said.next_offset));
});
const queues = guarded(async topic => {
  const said = await ask(`/v1/topics/${encodeURIComponent(topic)}/queues`);
  const made = table(topic, ["queue", "first", "end", "messages", "oldest", "newest"]);
  for (const q of said.queues)
    row(made, [q.queue_id, q.min_offset, q.max_offset, q.messages, time(q.oldest), time(q.newest)],
        () => messages(topic, q.queue_id));
});
const topics = guarded(async () => {
  const said = await ask("/v1/topics");
  const made = table("topics", ["topic", "queues", "messages", "bytes", "oldest", "newest"]);
  for (const t of said.topics)
    row(made, [t.topic, t.queues, t.messages, t.bytes, time(t.oldest), time(t.newest)], () => queues(t.topic));
});
at("read").onclick = topics;
topics();
"""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
td { border-bottom: 1px solid #8884; padding: .2em .8em .2em 0; vertical-align: top; overflow-wrap: anywhere; }
tr:first-child { font-weight: bold; }
.link { cursor: pointer; }
.link td:first-child { text-decoration: underline; }
#said { color: #c22; }
"""

PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Archived messages</title><style>{_STYLE}</style></head><body>
<h1>Archived messages</h1>
<p>Read only. Tools use the same addresses: <a href="/openapi.json">/openapi.json</a> describes them.</p>
<p><label>Token, if one is set: <input id="token" type="password" autocomplete="off"></label>
<button id="read">Topics</button></p>
<p id="said"></p><h2 id="title"></h2><table id="rows"></table>
<script>{_SCRIPT}</script></body></html>
""".encode()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page runs its own script, talks to its own server and nothing else."""


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


def _operation(route: Route) -> dict[str, object]:
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
    if parameter.kind is Kind.WHOLE:
        schema |= {"minimum": parameter.low, "maximum": parameter.high}
    if parameter.kind is Kind.TEXT:
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
    "topics": _object("stale topics", stale=_STALE, topics=_list("Topic")),
    "queues": _object("stale topic queues", stale=_STALE, topic=_STRING, queues=_list("Queue")),
    "messages": _object(
        "topic queue_id min_offset max_offset messages next_offset end",
        topic=_STRING, queue_id=_WHOLE, min_offset=_WHOLE, max_offset=_WHOLE, messages=_list("Message"),
        next_offset=_WHOLE, end={**_FLAG, "description": "nothing more is archived now"}, error=_FAILURE,
    ),
    "query": _object("topic key messages", topic=_STRING, key=_STRING, messages=_list("Message")),
}  # fmt: skip
