"""Where engines find the files of an archive, and what reaches them there."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from tiered.errors import Invalid
from tiered.provider.open import s3_settings
from tiered.settings import Store

_CUT = "?#"
"""What ends a path where engines read a location."""


def files_location(archive_url: str, root: str) -> str:
    """What stands before the path of an object in the location that engines know it by, with a slash at its end. ``root``: the
    broker's, ``ArchiveKeys.root``. ``Invalid`` for a store that engines do not reach."""
    parsed = urlsplit(archive_url)
    path = unquote(parsed.path).strip("/")
    if parsed.scheme not in ("s3", "file"):
        raise Invalid(
            "engines do not reach this archive", found=f"{parsed.scheme}://", expected="s3://… or file:///…",
            hint="tables are kept of archives in S3 and in directories",
        )  # fmt: skip
    found = "/".join(part for part in (parsed.netloc, path, root) if part)
    if any(character in found for character in _CUT):
        raise Invalid("engines do not reach a path with ? or #", key="archive.url", found=path)
    return f"s3://{found}" if parsed.scheme == "s3" else f"file:///{found}"


def file_access(archive_url: str, store: Store) -> dict[str, str]:
    """pyiceberg's properties that reach an archive's files: endpoint, region, time limits, and credentials that were set."""
    parsed = urlsplit(archive_url)
    if parsed.scheme != "s3":
        return {}
    chosen = s3_settings(parsed, store)
    properties = {
        "s3.endpoint": chosen.endpoint,
        "s3.region": chosen.region or ("us-east-1" if chosen.endpoint else ""),
        "s3.access-key-id": chosen.access_key_id,
        "s3.secret-access-key": chosen.secret_access_key,
        "s3.session-token": chosen.session_token,
        "s3.role-arn": chosen.role_arn,
        "s3.force-virtual-addressing": "" if chosen.path_style else "true",
        "s3.connect-timeout": str(chosen.connect_timeout_ms / 1000),
        "s3.request-timeout": str(chosen.read_timeout_ms / 1000),
    }
    return {name: value for name, value in properties.items() if value}
