"""One RocketMQ record: the only place that knows where a record's fields lie.

Owns: boundaries (``frame``), the header as columns (``header``, ``columns``), properties, topics, one record for people and
tests (``message``), the consume queue's units. Does not own: the archive's own layouts (``codec.format``).
"""
