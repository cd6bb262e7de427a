"""Topics at a glance, and the report. ``job.py`` is where it begins."""
