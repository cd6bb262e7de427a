"""The destination *rocketmq*: brokers of another cluster.

Owns: who those brokers are (``cluster``), what a message carries along so that it does not run in circles and is known when it
comes twice (``carried``), sending in the order of queues (``sink``), options (``kind``). Does not own: frames and connections,
which properties of a message travel (``broker``).
Invariant: the next message of a queue is sent when the one before it is stored. Where an answer is lost it is sent again: at
least once.
Threads: the sink's one.
"""
