"""``tiered serve``: a read node."""

from __future__ import annotations

import logging

from tiered.cli.options import ArchiveUrl, ConfigFile, SetValues, flags
from tiered.daemon import logs
from tiered.daemon.checks import cautions, check, check_doors, require
from tiered.daemon.config import environment, load
from tiered.daemon.serve import run_node


def command(config: ConfigFile = None, archive: ArchiveUrl = None, sets: SetValues = None) -> int:
    """Read the archive for gateways: a node without broker and disk, one of any number over one bucket.

    Gateways that name it in gateway.read_nodes have it read cold messages, and read elsewhere while it does not answer. It may
    be started, stopped and killed at any time. With serve.key_values it also answers reads of the key-value view, as the
    archive has it. SIGTERM or Ctrl-C ends it.
    """
    env = environment()
    loaded = load(config, env, flags(None, archive, sets))
    check(loaded)
    require(loaded, "archive.url")
    check_doors(loaded.settings, "serve", *(["kv"] if loaded.settings.serve.key_values else []))
    logs.configure(loaded.settings.log, loaded.secrets())
    for warning in (*loaded.warnings, *cautions(loaded.settings)):
        logging.getLogger("tiered.node").warning(warning)
    return run_node(loaded, env)
