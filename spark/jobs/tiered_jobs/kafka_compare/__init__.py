"""A sink's Kafka topics held against the archive. ``job.py`` is where it begins."""
