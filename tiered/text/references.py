"""Values that name where a secret is, ``env:NAME`` or ``file:PATH``, instead of being one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tiered.errors import Invalid

ENVIRONMENT, FILE = "env:", "file:"


def resolve(
    value: str,
    environment: Mapping[str, str] = os.environ,  # noqa: TID251  (the door of what is named and not written)
    what: str = "an option",
) -> str:
    """What a value means on this host: that of the variable ``env:NAME``, the text of the file ``file:PATH`` without the line's
    end, or itself. ``file://…`` is a URL. ``what`` it is the value of, for errors. ``Invalid`` where it is not there; never
    says what it holds."""
    if value.startswith(ENVIRONMENT):
        name = value.removeprefix(ENVIRONMENT)
        if name not in environment:
            raise Invalid(
                f"{what} names a variable that is not set",
                found=value,
                hint=f"set {name} where the program runs",
            )
        return environment[name]
    if is_file_reference(value):
        path = value.removeprefix(FILE)
        try:
            return Path(path).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or "not text"
            raise Invalid(f"{what} names a file that cannot be read", found=value, reason=reason) from error
    return value


def is_file_reference(value: str) -> bool:
    """``file:PATH``, and no URL."""
    return value.startswith(FILE) and not value.startswith("file://")
