"""Settings of read nodes."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.settings.option import GIB, MIB, SettingsSection, ms, option, size


@dataclass(frozen=True, slots=True)
class Serve(SettingsSection):
    """A read node (``tiered serve``): reads the archive for gateways, which find it in gateway.read_nodes."""

    listen: str = option("127.0.0.1:10930", "address that gateways ask, host:port; port 0: any")
    membership: str = option(
        "",
        "where the node announces itself: bucket (leases in the archive); empty: nowhere, gateway.read_nodes names it",
        choices=("", "bucket"),
    )
    name: str = option("", "its name among read nodes, one for each; empty: host name and port")
    advertise: str = option("", "address that it announces, host:port; empty: serve.listen")
    capacity: int = option(
        1,
        "its share of reads beside other nodes': with 2 it gets twice as many as one with 1",
        low=1,
        high=1_000,
    )
    lease_ms: int = ms(
        60_000,
        "without renewal for so long it counts as gone; it is renewed three times as often, each two requests to a bucket",
        1_000,
        600_000,
    )
    drain_ms: int = ms(
        5_000, "time that gateways have to notice that it stops, before it hangs up", 0, 600_000
    )
    token: str = option(
        "", "what gateways must show, their gateway.read_node_token; empty: nothing", secret=True
    )
    http_listen: str = option("", "address of the read-only HTTP pages, host:port; empty: no pages")
    http_token: str = option("", "bearer token that HTTP readers must send; empty: not needed", secret=True)
    web_listen: str = option(
        "127.0.0.1:9480", "address of /healthz /readyz /metrics /status of the node; empty: none"
    )
    state_directory: str = option(
        "",
        "where the port of the health pages is written; empty: nowhere. A node keeps nothing else, but for serve.key_values",
    )
    key_values: bool = option(
        False,
        "follow the key-value view in the archive, too, and answer reads of it, at kv.http_listen and on serve.listen; its"
        " store lies in kv.state_directory, else in kv under serve.state_directory, and may be deleted",
    )
    key_value_bytes: int = size(
        16 * GIB,
        "largest store of that view on disk (kv.store rocksdb; kv.map_bytes bounds a map); beyond it the view stands still",
        MIB,
        1 << 50,
    )
    key_value_writer: str = option(
        "",
        "URL of a view beside the broker, http://host:port: told to those who ask the node for a write, or for the latest; the"
        " node itself never asks it",
    )
    max_connections: int = option(1024, "connections of gateways; more are closed", low=1, high=1_000_000)
    max_reads: int = option(
        256, "reads of one connection at once; further ones wait unread", low=1, high=65_536
    )
    answer_bytes: int = size(
        64 * MIB, "answers on their way to gateways, all connections together; more reads wait", MIB, 64 * GIB
    )
    read_timeout_ms: int = ms(
        10_000, "time for one read; after it the gateway is told to ask elsewhere", 100, 600_000
    )
    stall_timeout_ms: int = ms(
        30_000, "a gateway that takes none of the bytes waiting for it this long is cut off", 100, 3_600_000
    )
