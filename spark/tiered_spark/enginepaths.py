"""Objects of an archive by the names that Spark's own file systems (Hadoop's) give them."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from tiered.errors import Invalid, Refused
from tiered.provider.open import FSSPEC

_SCHEMES = {"file": "file", "s3": "s3a", "s3a": "s3a", "gcs": "gs"}
"""Hadoop's name of a scheme, where it is another one."""

_SAME = ("gs", "abfs", "abfss", "hdfs", "webhdfs", "oss")
_GLOB = re.compile(r"[{}\[\]*?\\]")


def engine_path(url: str, key: str) -> str:
    """The path of an object below an archive's root as ``spark.read.parquet`` takes it, which has no options and no percent
    encoding of its own. ``Refused`` where Hadoop has no such store."""
    parsed = urlsplit(url)
    scheme = parsed.scheme.lower().removeprefix(FSSPEC)
    named = _SCHEMES.get(scheme, scheme if scheme in _SAME else None)
    if named is None:
        raise Refused(
            "Spark has no file system of its own for this archive",
            archive=url.split("?", 1)[0],
            expected="file, s3, " + ", ".join(f"{FSSPEC}{name}" for name in _SAME),
            hint="spark.read.format('rocketmq_tiered') reads it",
        )
    root = unquote(parsed.path).rstrip("/")
    where = "" if named == "file" else parsed.netloc
    return f"{named}://{where}" + _GLOB.sub(r"\\\g<0>", f"{root}/{key}")


def lacking(error: Exception | str, url: str, otherwise: str) -> Invalid | None:
    """What to say of an error of Spark's that is about a file system whose package is not there; ``None`` for any other.
    ``otherwise``: what to do without it."""
    told = str(error)
    if "No FileSystem for scheme" not in told and not _NO_CLASS.search(told):
        return None
    return Invalid(
        "Spark has no file system for this URL here", url=url,
        hint="add its package, for s3a: --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION of Spark's "
        f"Hadoop; or {otherwise}",
    )  # fmt: skip


_NO_CLASS = re.compile(r"ClassNotFoundException: (Class )?\S*(FileSystem|[.]fs[.])")
