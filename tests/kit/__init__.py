"""The test kit: real counterparts (RocketMQ broker, S3 server), a fault proxy and slow independent readers.

Owns every process that tests start and the cache that holds the programs they need. Does not own assertions: a
kit module starts, drives and reads, a test judges. Invariant: it ends only processes that it started, by their
process id, and it writes only into the directories it is given and into the cache. Threads: the fault proxy has
one per connection; everything else is synchronous. Nothing here is imported by the program.
"""
