"""Read nodes as the gateway sees them: which one reads a queue, how it is asked, what becomes of a read when none answers."""
