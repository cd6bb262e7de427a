"""``tiered gen``: writes a store as a broker does, for demos, benchmarks and tests."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from tiered.cli.options import JsonFlag, output
from tiered.clock import SystemClock
from tiered.daemon.signals import Signals
from tiered.errors import Invalid, of_local_disk
from tiered.text.human import Kind
from tiered.text.values import size_bytes

_FOLLOW_BATCH = 1 << 40


def command(
    store: Annotated[
        str,
        typer.Option(
            "--store", metavar="DIR", help="Store directory to write; an existing store is continued."
        ),
    ],
    messages: Annotated[int, typer.Option("--messages", min=0, help="Messages to append.")] = 100_000,
    topics: Annotated[int, typer.Option("--topics", min=1, max=1_000_000, help="Topics.")] = 1,
    queues: Annotated[int, typer.Option("--queues", min=1, max=1_000_000, help="Queues of each topic.")] = 4,
    body_bytes: Annotated[
        str, typer.Option("--body-bytes", metavar="SIZE", help="Body size, such as 1024 or 4KiB.")
    ] = "1024",
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.001, help="Messages per second; default: as fast as possible."),
    ] = None,
    file_bytes: Annotated[
        str, typer.Option("--file-bytes", metavar="SIZE", help="Size of a commitlog file.")
    ] = "64MiB",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Same seed, same bodies and tags.")] = 0,
    zipf: Annotated[
        float | None,
        typer.Option(
            "--zipf",
            min=0.001,
            metavar="EXPONENT",
            help="Once each queue has a message, give the k-th busiest a share of 1 / k^EXPONENT; default: round robin.",
        ),
    ] = None,
    consume_queues: Annotated[
        bool,
        typer.Option(
            "--consume-queues/--no-consume-queues",
            help="Write consume queues, a file for each queue. Archiving needs none: of very many queues leave them out.",
        ),
    ] = True,
    follow: Annotated[
        bool, typer.Option("--follow", help="Ignore --messages and go on until stopped.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Write a broker-format store as a broker does: append, roll files, consume queues.

    SIGTERM or Ctrl-C stops cleanly; kill -9 leaves a torn store, as it would a broker's.
    """
    from tiered.source.generator.store import GeneratorOptions, StoreGenerator, topic_names

    if not store.strip():
        raise Invalid(
            "--store is empty", hint="name the directory of the store to write; . is the current one"
        )
    out = output(json)
    options = GeneratorOptions(
        store_dir=Path(store),
        messages=_FOLLOW_BATCH if follow else messages,
        topics=topic_names(topics, "DemoTopic"),
        queues=queues,
        body_bytes=size_bytes("--body-bytes", body_bytes),
        rate=rate,
        seed=seed,
        file_bytes=size_bytes("--file-bytes", file_bytes),
        zipf=zipf,
        consume_queues=consume_queues,
    )
    clock, stop = SystemClock(), threading.Event()
    begun = clock.monotonic()
    try:
        generator = StoreGenerator(options, clock)
        with Signals(stop, clock), generator:
            first = generator.physical_offset
            with out.progress("appending", 0 if follow else messages) as advance:
                written = generator.run(stop, advance)
            end = generator.physical_offset
    except OSError as error:
        raise of_local_disk(
            "cannot write the store", error, path=error.filename or store,
            hint="--store names a directory that can be made and written",
        ) from error  # fmt: skip
    seconds = clock.monotonic() - begun
    out.record(
        {
            "store": store,
            "messages": written,
            "topics": topics,
            "queues": topics * queues,
            "start_offset": first,
            "end_offset": end,
            "bytes": end - first,
            "seconds": round(seconds, 3),
            "messages_per_second": round(written / seconds) if seconds > 0 else None,
        },
        kinds={"bytes": Kind.SIZE, "messages": Kind.COUNT, "messages_per_second": Kind.COUNT},
    )
