"""``tiered kv serve``: the key-value view of a broker's log."""

from __future__ import annotations

import logging

from tiered.cli.options import ArchiveUrl, ConfigFile, SetValues, StoreDir, flags
from tiered.daemon import logs
from tiered.daemon.checks import cautions, check, check_doors
from tiered.daemon.config import environment, load


def command(
    config: ConfigFile = None,
    store: StoreDir = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
) -> int:
    """Serve the key-value view of a broker's log, until SIGTERM or Ctrl-C.

    It runs beside a broker, master or slave, and reads its commitlog; with an archive it also knows what the broker has
    deleted, and with an archive alone it runs anywhere. Writes go to the master at kv.broker_address.
    """
    from tiered.daemon.keyvalue import (
        run_key_values,
    )  # it brings stores and servers, which the other verbs do not need

    env = environment()
    loaded = load(config, env, flags(store, archive, sets))
    check(loaded)
    check_doors(loaded.settings, "kv")
    logs.configure(loaded.settings.log, loaded.secrets())
    for warning in (*loaded.warnings, *cautions(loaded.settings)):
        logging.getLogger("tiered.view").warning(warning)
    return run_key_values(loaded, env)
