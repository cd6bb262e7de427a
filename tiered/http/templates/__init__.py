"""HTML, style and script of pages for people, as files of the package."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from string import Template


def whole_page(name: str) -> tuple[bytes, str]:
    """The page made of ``name``.html with its .css and .js inside, and the Content-Security-Policy for it.

    The page runs its own script, talks to its own server and nothing else.
    """
    html, style, script = (_file(f"{name}.{kind}") for kind in ("html", "css", "js"))
    page = Template(html).substitute(style=style, script=script)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page.encode(), policy


def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
