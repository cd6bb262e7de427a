"""``tiered run``: the daemon."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from tiered.cli.options import ArchiveUrl, ConfigFile, DaemonState, SetValues, StoreDir, flags
from tiered.daemon import logs
from tiered.daemon.app import run
from tiered.daemon.checks import cautions, check, check_doors
from tiered.daemon.config import DEFAULT, Loaded, environment, load
from tiered.daemon.parts import Choices
from tiered.text.speaker import speaker


def command(
    config: ConfigFile = None,
    store: StoreDir = None,
    archive: ArchiveUrl = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Archive everything up to the broker's end as it is now, commit, exit 0; "
            "8 if damage in the commitlog had to be recorded as a gap.",
        ),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Claim the archive now, even though another writer may be alive."),
    ] = False,
    new_lineage: Annotated[
        bool,
        typer.Option(
            "--new-lineage", help="Accept a reinstalled broker as a new lineage of the same archive."
        ),
    ] = False,
    state: DaemonState = None,
    sets: SetValues = None,
) -> int:
    """Archive a broker's commitlog: tail, upload, commit, until stopped.

    The first SIGTERM or Ctrl-C commits what is buffered and exits 0; the second gives up at once. SIGHUP has it read section
    [retain] of the settings again.
    """
    given = flags(store, archive, sets)
    if state is not None:
        given["state.directory"] = state
    if new_lineage:
        given["archive.new_lineage"] = True
    env = environment()

    def again() -> Loaded:
        found = load(config, env, given)
        if once and found.origins["web.port"] is DEFAULT:  # it ends by itself, and a daemon may have the port
            found = load(config, env, {**given, "web.port": -1})
        check(found, writer=True)
        return found

    loaded = again()
    if loaded.settings.gateway.namesrv_upstream:
        check_doors(loaded.settings, "gateway")
    logs.configure(loaded.settings.log, loaded.secrets())
    for warning in (*loaded.warnings, *cautions(loaded.settings)):
        logging.getLogger("tiered.daemon").warning(warning)
    out = speaker(json_output=not once or loaded.settings.log.format == "json")  # a bar for people, or none
    with out.progress("archiving, percent", 100) as advance:
        return run(loaded, Choices(once, take_over, advance), env, again)
