"""What an archive would cost. ``job.py`` is where it begins."""
