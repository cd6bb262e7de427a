"""``tiered kv``: the key-value view of a broker's log."""

from __future__ import annotations

import typer

from tiered.cli.kvserve import command as serve

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keys and values over a broker's log: puts are messages, reads come from a view that is made of them."""


app.command("serve")(serve)
