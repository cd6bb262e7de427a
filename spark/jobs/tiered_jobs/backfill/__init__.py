"""A sink given its history by executors. ``job.py`` is where it begins."""
