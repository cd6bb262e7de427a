"""Jobs on the archive, by Spark: see ``spark/jobs/README.md``. Driver programs; what runs on executors is ``tiered_spark``."""
