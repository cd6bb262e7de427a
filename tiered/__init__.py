"""Tiered storage for Apache RocketMQ: the archive of a broker's commitlog, its writer and its readers.

The floor plan is in ``tiered/README.md``.
"""
