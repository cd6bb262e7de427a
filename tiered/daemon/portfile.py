"""Files of a state directory by which other processes find the web pages of the one that runs there: a port number each."""

from __future__ import annotations

WEB_PORT_FILE = "web-port"
GATEWAY_WEB_PORT_FILE = "gateway-web-port"
KEY_VALUE_PORT_FILE = "kv-port"
"""Of ``/v1/kv``, in the state directory of a key-value view."""
NODE_PORT_FILE = "node-port"
"""Where gateways ask, in the state directory of a read node."""
