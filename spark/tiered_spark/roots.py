"""Archives below an URL: those of the root itself, or, if it has none, of the folders in it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlsplit

from tiered.archive.keys import ArchiveKeys, split_key
from tiered.errors import Refused
from tiered.provider.base import Provider

MAX_OTHER_KEYS = 100_000
"""Keys that are no archive's and are passed over in search of archives: 100 requests of S3."""


def archives_below(provider: Provider, url: str) -> list[tuple[str, ArchiveKeys]]:
    """URL of its root and keys of each archive. ``Refused`` if too much below it is not an archive."""
    found = list(_found(provider, url))
    top = [one for one in found if not one[0]]
    return [(_below(url, folder), ArchiveKeys(*names)) for folder, *names in top or found]


def _found(provider: Provider, url: str) -> Iterator[tuple[str, str, str]]:
    """Folder, cluster and broker; jumps from one to the next, so that big archives cost one request."""
    after: str | None = None
    others = 0
    while True:
        for item in provider.list("", start_after=after):
            named = _named(item.key)
            if named is not None:
                break
            others += 1
            if others > MAX_OTHER_KEYS:
                raise Refused(
                    "too many other keys lie here, so archives cannot be looked for",
                    archive=url,
                    expected=f"at most {MAX_OTHER_KEYS} other keys",
                    hint="name the roots of the archives themselves, joined with commas",
                )
        else:
            return
        yield named
        folder, cluster, broker = named
        after = f"{folder}{ArchiveKeys(cluster, broker).root}\U0010ffff"


def _named(key: str) -> tuple[str, str, str] | None:
    """Folder ("" or with a slash at its end), cluster and broker of an archive's key."""
    parts = key.split("/")
    for depth in range(len(parts) - 2):
        split = split_key("/".join(parts[depth:]))
        if split is not None:
            return "".join(f"{part}/" for part in parts[:depth]), split[0], split[1]
    return None


def _below(url: str, folder: str) -> str:
    """The URL of a folder of a root."""
    if not folder:
        return url
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{quote(folder.rstrip('/'))}").geturl()
