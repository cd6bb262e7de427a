"""The life of a message. ``job.py`` is where it begins."""
