"""What stores, portals, proxies and maintenance pages were seen to answer instead of what S3 answers: bends for ``FakeS3``.

``LIES``: name → bend, for any verb; which verbs a lie is told to is the test's choice (``told_to``).
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Collection
from dataclasses import replace

from tests.kit.fakes3 import Answer, Bend, Request, error, xml

PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"
"""What a portal says to everybody."""

MODIFIED = "Mon, 02 Mar 2026 00:00:00 GMT"

Act = Callable[[], Answer]


def told_to(verbs: Collection[str], lie: Bend, times: int | None = None, keys: str = "") -> Bend:
    """``lie`` to these verbs (empty: all) below the keys that contain ``keys``, ``times`` at most; the truth to the others."""
    told = 0

    def bend(request: Request, act: Act) -> Answer:
        nonlocal told
        concerned = (not verbs or request.verb in verbs) and keys in (
            request.key or request.query.get("prefix", "")
        )
        if not concerned or (times is not None and told >= times):
            return act()
        told += 1
        return lie(request, act)

    return bend


def page(request: Request, act: Act) -> Answer:
    """A portal: 200 and HTML, and nothing done. It is a file to a web server, so it has an ETag and a time."""
    stated = {"Content-Type": "text/html", "Server": "portal", "ETag": '"5f3c-36"', "Last-Modified": MODIFIED}
    return Answer(200, stated, PAGE)


def page_behind(request: Request, act: Act) -> Answer:
    """A proxy that did what was asked, and then shows a page of its own."""
    act()
    return page(request, act)


def nothing(request: Request, act: Act) -> Answer:
    """200, empty, and nothing done."""
    return Answer()


def no_content(request: Request, act: Act) -> Answer:
    """204, and nothing done."""
    return Answer(204)


def bare(request: Request, act: Act) -> Answer:
    """Done, and answered without an ETag, a request id or a version."""
    return act().without("ETag", "x-amz-request-id", "Server")


def swallowed(request: Request, act: Act) -> Answer:
    """Nothing done, and answered as if: with a request id and, to a PUT, an ETag."""
    said = {"x-amz-request-id": "0000000000000000"}
    if request.method == "DELETE":
        return Answer(204, said)
    return Answer(200, {**said, "ETag": '"0123456789abcdef0123456789abcdef"'})


def short(request: Request, act: Act) -> Answer:
    """Half of the body, honestly counted: of a range, 206 with a Content-Range of all of it."""
    found = act()
    return replace(found, body=found.body[: len(found.body) // 2])


def whole(request: Request, act: Act) -> Answer:
    """A range ignored: 200 with all of the object."""
    request.headers.pop("range", None)
    return act().without("Content-Range")


def bare_range(request: Request, act: Act) -> Answer:
    """200 with only the bytes that were asked for, and no word of which they are."""
    return replace(act().without("Content-Range"), status=200)


def said_range(request: Request, act: Act) -> Answer:
    """200 with the bytes that were asked for, and which they are."""
    found = act()
    return replace(found, status=200) if found.status == 206 else found


def longer(request: Request, act: Act) -> Answer:
    """A length that is not the body's, and then the end of the connection."""
    found = act()
    return replace(found, length=len(found.body) + 10, close=True)


def refused(code: str, status: int = 403) -> Bend:
    """The error answer ``code``."""
    return lambda request, act: error(status, code)


def refused_bare(request: Request, act: Act) -> Answer:
    """A firewall's 403, in HTML."""
    return Answer(403, {"Content-Type": "text/html"}, b"<html><body>blocked</body></html>")


def elsewhere(status: int) -> Bend:
    """Moved to a host that must never be asked."""
    target = {"Location": "http://elsewhere.invalid/bucket", "Content-Type": "text/html"}
    return lambda request, act: Answer(status, target, PAGE)


def garbage(request: Request, act: Act) -> Answer:
    """A body in chunks that are none."""
    return Answer(200, {"Content-Type": "application/xml"}, raw=b"zz\r\nnot a chunk\r\n", close=True)


def zipped(request: Request, act: Act) -> Answer:
    """A proxy that compresses what it passes on, and says so."""
    found = act()
    return replace(
        found, headers={**found.headers, "Content-Encoding": "gzip"}, body=gzip.compress(found.body)
    )


def http10(request: Request, act: Act) -> Answer:
    """The truth by HTTP/1.0: no length, the body ends with the connection."""
    return replace(act(), version="HTTP/1.0", close=True)


def unlisted(request: Request, act: Act) -> Answer:
    """Listings without a key, whatever lies there; all else is true."""
    return xml("<ListBucketResult></ListBucketResult>") if request.verb == "list" else act()


FORBIDDEN = (
    "AccessDenied",
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "ExpiredToken",
    "RequestTimeTooSkewed",
)
"""Five of the six kinds of 403 in the matrix; the sixth has no code."""

LIES: dict[str, Bend] = {
    "200 HTML": page,
    "200 HTML, done": page_behind,
    "200 empty": nothing,
    "204": no_content,
    "no ETag, no id": bare,
    "swallowed": swallowed,
    "short": short,
    "range ignored": whole,
    "200 for a range, bare": bare_range,
    "200 for a range": said_range,
    "wrong length": longer,
    **{f"403 {code}": refused(code) for code in FORBIDDEN},
    "403 HTML": refused_bare,
    "301": elsewhere(301),
    "307": elsewhere(307),
    "chunked garbage": garbage,
    "gzip": zipped,
    "HTTP/1.0": http10,
    "empty listing": unlisted,
}
"""Every lie of the matrix but the stale listing, which has a memory (``Stale``)."""


class Stale:
    """Listings as they were when this was made: keys put since are not in them, and deleted ones are."""

    def __init__(self) -> None:
        self._then: dict[tuple[str, ...], Answer] = {}

    def __call__(self, request: Request, act: Act) -> Answer:
        if request.verb != "list":
            return act()
        asked = tuple(f"{name}={value}" for name, value in sorted(request.query.items()))
        if asked not in self._then:
            self._then[asked] = act()
        return self._then[asked]
