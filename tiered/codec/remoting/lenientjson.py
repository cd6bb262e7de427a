"""Bodies that are nearly JSON: RocketMQ's fastjson writes numbers as keys of objects without quotes (``{"a":{0:1,-1:2}}``).

Maps whose keys are whole objects are for ``objectmap``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tiered.errors import Corrupt

# The closing quote is optional: a string that never ends is one match, and not one attempt at each of its quotes.
_STRING_OR_BARE_KEY = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)


def decode_json(body: bytes | memoryview) -> Any:
    """The value that ``body`` is, bare numbers as keys made strings; what looks like one inside a string stays as it is.

    ``Corrupt`` if it is not JSON even then.
    """
    data = bytes(body)
    try:
        try:
            return json.loads(data)
        except ValueError:
            return json.loads(_STRING_OR_BARE_KEY.sub(_quoted, data))
    except (ValueError, RecursionError) as error:
        raise Corrupt("a body is not JSON", found=str(error)[:200]) from error


def _quoted(found: re.Match[bytes]) -> bytes:
    return found[0] if found[2] is None else found[1] + b'"' + found[2] + b'"'
