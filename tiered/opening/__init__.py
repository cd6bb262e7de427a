"""How a daemon and its archive find each other: comparison with the broker, claim, rewind."""
