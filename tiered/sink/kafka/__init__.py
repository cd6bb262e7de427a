"""The destination *kafka*: each message a record of a topic, exactly once by Kafka's transactions, or at least once without.

Owns: names and partitions (``naming``, ``routes``), topics and whether they are the same as before (``topics``), the position
as records of a compacted topic (``positions``, ``keeping``), what goes over the wire (``records``), where messages came to lie
(``reports``), the client and what its errors mean (``client``), options (``settings``, ``kind``). Does not own: the client
itself, confluent-kafka, an extra that is imported when a sink is checked or opened.
Invariant: messages of a queue lie in one partition in the order of the queue. In mode *transactional* messages and the position
behind them are committed in one transaction, and a process that was overtaken commits nothing any more.
Threads: the sink's one; librdkafka has its own, which call nothing of ours but on that one.
"""
