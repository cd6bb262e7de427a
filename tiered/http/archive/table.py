"""Which pages the archive has, and their parameters: declared once, checked and described from the same declaration."""

from __future__ import annotations

from tiered.http.routes import Kind, PageRoute, Parameter

_TOPIC = Parameter("topic", Kind.TEXT, "name of the topic", in_path=True, required=True)
_QUEUE = Parameter("queue", Kind.WHOLE, "queue id", in_path=True, required=True, high=(1 << 31) - 1)

ROUTES = (
    PageRoute("page", "/", "A page for people that reads the others."),
    PageRoute("openapi", "/openapi.json", "This description."),
    PageRoute(
        "topics",
        "/v1/topics",
        "Archived topics, in order of their names.",
        (Parameter("system", Kind.FLAG, "RocketMQ's own topics too", default=False),),
    ),
    PageRoute(
        "queues", "/v1/topics/{topic}/queues", "Archived queues of a topic, with their offsets.", (_TOPIC,)
    ),
    PageRoute(
        "messages",
        "/v1/topics/{topic}/queues/{queue}/messages",
        "Messages of a queue in order. A long search ends early: go on at next_offset until end is true.",
        (
            _TOPIC,
            _QUEUE,
            Parameter("offset", Kind.WHOLE, "where to begin; absent: at the first message, or at time"),
            Parameter(
                "time", Kind.WHOLE, "begin at the first message stored at or after this, ms since 1970"
            ),
            Parameter("count", Kind.WHOLE, "most messages", default=32, low=1, high=100_000),
            Parameter("tag", Kind.TEXT, "only messages with this tag; several: a || b"),
            Parameter("sql", Kind.TEXT, "only messages whose properties satisfy this SQL92 expression"),
        ),
    ),
    PageRoute(
        "query",
        "/v1/query",
        "The newest messages of a topic that have a key, in the order in which they were stored.",
        (
            Parameter("topic", Kind.TEXT, "name of the topic", required=True),
            Parameter("key", Kind.TEXT, "one of the KEYS of the messages", required=True),
            Parameter("unique", Kind.FLAG, "key is the id made by the client (UNIQ_KEY)", default=False),
            Parameter(
                "count",
                Kind.WHOLE,
                "most messages; fewer if they are more than 64 MiB",
                default=32,
                low=1,
                high=256,
            ),
            Parameter("begin", Kind.WHOLE, "stored at or after this, ms since 1970"),
            Parameter("end", Kind.WHOLE, "stored at or before this, ms since 1970"),
        ),
    ),
)
