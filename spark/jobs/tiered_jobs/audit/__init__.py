"""Whether archive, broker and tables agree. ``job.py`` is where it begins."""
