"""One RocketMQ record: the only place that knows where a record's fields lie.

Owns: the bytes (``layout``: offsets, dtypes, readers of single fields), boundaries (``frame``, ``walk``), the header as columns
(``header``, ``columns``), properties, topics, hosts and message ids (``hosts``), one record for people, filters and tests
(``message``), the consume queue's units. Does not own: the archive's own layouts (``codec.format``).
"""
