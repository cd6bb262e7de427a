"""For ``spark-submit spark/jobs/submit.py JOB …``; the same as ``tiered spark JOB …``."""

from __future__ import annotations

import sys

from tiered_jobs.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
