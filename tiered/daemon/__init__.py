"""The daemon's shell: settings from file, environment and flags, health pages, logs, signals, lock, systemd.

Owns: how settings reach the program, what the process tells its operator, and how it ends. Does not own: archiving,
which it only starts and stops (``app`` is the composition root, the one place that chooses drivers, pools and
threads). Invariant: the environment is read in ``config`` alone, and no secret leaves through a log, page or error.
Threads: one for signals, one that serves the pages of health (``tiered.http.health``), and one for each page being made.
"""
