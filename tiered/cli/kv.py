"""``tiered kv``: the key-value view of a broker's log."""

from __future__ import annotations

import typer

from tiered.cli import kvsnapshot, kvverbs
from tiered.cli.kvserve import command as serve

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keys and values over a broker's log: puts are messages, reads come from a view that is made of them."""


app.command("get")(kvverbs.get_command)
app.command("get-many")(kvverbs.get_many_command)
app.command("put")(kvverbs.put_command)
app.command("cas")(kvverbs.cas_command)
app.command("delete")(kvverbs.delete_command)
app.command("list")(kvverbs.list_command)
app.command("create")(kvverbs.create_command)
app.command("namespaces")(kvverbs.namespaces_command)
app.command("serve")(serve)
app.add_typer(kvsnapshot.app, name="snapshot")
