"""``python -m tests.kit.inpod serve …`` is ``tiered serve …`` in a pod whose API server is the fake of the kit.

A pod finds the API and its token at places that are always the same; here they are where the environment says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

IN_A_POD = (sys.executable, "-m", "tests.kit.inpod")
_URL, _TOKEN = "TIERED_TEST_API_URL", "TIERED_TEST_API_TOKEN"


def pod(url: str, token: Path) -> Mapping[str, str]:
    """The environment of such a process."""
    return {_URL: url, _TOKEN: str(token)}


if __name__ == "__main__":
    from tiered.cli.main import main
    from tiered.membership.kubernetes import ApiServer

    found = Path(os.environ.pop(_TOKEN))
    ApiServer.__init__.__defaults__ = (os.environ.pop(_URL), found, found)
    sys.exit(main())
