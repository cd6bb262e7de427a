"""A writer of broker stores, for demos, tests and benchmarks."""
