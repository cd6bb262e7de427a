"""The name-server front and the routes that it rewrites."""
