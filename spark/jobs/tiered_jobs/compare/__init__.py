"""Two archives, or two time ranges. ``job.py`` is where it begins."""
