"""Sealed files made on executors, and proposed to the daemon."""
