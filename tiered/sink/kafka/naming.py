"""Names of Kafka topics made of RocketMQ's: legal ones, and no two alike. Pure."""

from __future__ import annotations

import hashlib
import re

MAX_NAME = 249
_LEGAL = re.compile(rb"[A-Za-z0-9_-]")
_TEMPLATE = re.compile(r"(?:[A-Za-z0-9._-]|\{topic\}|\{broker\}|\{cluster\})+\Z")
_DIGEST = 32


def is_template(text: str) -> bool:
    """Whether this can be the option ``topic``: legal letters, and the places ``{topic}``, ``{broker}``, ``{cluster}``."""
    made = text.replace("{topic}", "t").replace("{broker}", "b").replace("{cluster}", "c")
    return _TEMPLATE.match(text) is not None and len(made) <= 200 and made not in (".", "..")


def kafka_name(name: str) -> str:
    """A name with its bytes that Kafka does not take, and every ``.``, as ``.xx`` in hexadecimal: names that differ stay
    different. A leading ``__``, which is for Kafka's own topics and ours, begins with ``.5f``. Names of usual topics stay."""
    raw = name.encode("utf-8", "surrogateescape")
    text = "".join(chr(b) if _LEGAL.match(bytes((b,))) else f".{b:02x}" for b in raw)
    return ".5f" + text[1:] if text.startswith("__") else text


def target_name(template: str, topic: str, broker: str, cluster: str) -> str:
    """The topic of Kafka for one of RocketMQ. A name that would be too long ends with a digest of all of it."""
    places = {"{topic}": topic, "{broker}": broker, "{cluster}": cluster}
    parts = re.split(r"(\{topic\}|\{broker\}|\{cluster\})", template)
    made = "".join(kafka_name(places[part]) if part in places else part for part in parts)
    if len(made) <= MAX_NAME:
        return made
    return made[: MAX_NAME - _DIGEST - 2] + ".." + hashlib.sha256(made.encode()).hexdigest()[:_DIGEST]
