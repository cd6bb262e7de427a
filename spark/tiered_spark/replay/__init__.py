"""Sends rows to a broker again: ``source.py`` is what Spark calls, ``wire.py`` speaks to the broker."""
