"""The fault proxy without any protocol: one rule per connection, bytes both ways."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from tests.kit.faultproxy import Action, FaultProxy, Rule, reset

_CHUNK = 1 << 16


def serve_bytes(proxy: FaultProxy, client: socket.socket) -> None:
    """Serve one client connection under the rule chosen for it. ``CUT_*`` count the bytes of one direction."""
    rule = proxy.choose()
    if rule.action is Action.REFUSE:
        reset(client)
        return
    if rule.action is Action.BLACK_HOLE:
        while client.recv(_CHUNK):
            pass
        return
    if rule.action is Action.DELAY and proxy.closing.wait(rule.seconds):
        return
    upstream = proxy.connect()
    there = threading.Thread(target=_pump, args=(client, upstream, rule, True), daemon=True)
    there.start()
    try:
        _pump(upstream, client, rule, False)
    finally:
        proxy.release(upstream, client)
        there.join(10)


def _pump(source: socket.socket, target: socket.socket, rule: Rule, asking: bool) -> None:
    """Copy until the source ends or the rule cuts; then let the other side know."""
    limit = rule.after_bytes if rule.action is (Action.CUT_REQUEST if asking else Action.CUT_ANSWER) else None
    try:
        while data := source.recv(_CHUNK if limit is None else min(_CHUNK, limit) or 1):
            if not asking and rule.action is Action.CUT_BEFORE_ANSWER:
                reset(target)
                return
            if not asking and rule.action is Action.SWALLOW:
                continue
            if limit is not None:
                data = data[:limit]
                limit -= len(data)
            if rule.action is Action.THROTTLE:
                time.sleep(len(data) / rule.bytes_per_second)
            target.sendall(data)
            if limit == 0:
                # The client first: the other thread would end its connection politely once it sees the server's gone.
                for connection in (source, target) if asking else (target, source):
                    reset(connection)
                return
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
    except OSError:
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
