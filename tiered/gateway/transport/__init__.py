"""Connections and frames: bytes, no meaning. Nothing here knows what a pull is."""
