"""Requests other than pulls that the archive answers or completes: offsets, look-ups, resets, statistics."""
