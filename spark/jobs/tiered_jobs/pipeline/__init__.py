"""Archive to tables: bronze, silver, gold. ``job.py`` is where it begins."""
