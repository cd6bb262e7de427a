"""Benchmarks: ratios against a baseline run beside them in the same invocation. ``python -m tests.bench --help``."""
