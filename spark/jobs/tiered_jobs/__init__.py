"""Jobs on the archive, by Spark: see ``spark/jobs/README.md``. Executors need this package too."""
