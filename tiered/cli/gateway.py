"""``tiered gateway``: stands between consumers and brokers."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from tiered.cli.options import ArchiveUrl, ConfigFile, SetValues, flags
from tiered.daemon import logs
from tiered.daemon.checks import cautions, check, check_doors, require
from tiered.daemon.config import Loaded, environment, load
from tiered.daemon.gateway import run_gateway


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    namesrv: Annotated[
        str | None,
        typer.Option(
            "--namesrv",
            metavar="HOST:PORT",
            help="Name servers behind the gateway (gateway.namesrv_upstream).",
        ),
    ] = None,
    sets: SetValues = None,
) -> int:
    """Let consumers read old offsets: clients use the gateway as their name server and notice nothing.

    Everything passes through untouched; what the broker has deleted is answered from the archive. SIGTERM or Ctrl-C ends it;
    SIGHUP has it read the storage levels again.
    """
    given = flags(None, archive, sets)
    if namesrv is not None:
        given["gateway.namesrv_upstream"] = namesrv
    env = environment()
    loaded = load(config, env, given)
    check(loaded)
    require(loaded, "gateway.namesrv_upstream", "archive.url")
    check_doors(loaded.settings, "gateway")
    logs.configure(loaded.settings.log, loaded.secrets())
    for warning in (*loaded.warnings, *cautions(loaded.settings)):
        logging.getLogger("tiered.gateway").warning(warning)

    def again() -> Loaded:
        found = load(config, env, given)
        check(found)
        return found

    return run_gateway(loaded, env, again)
