"""The command line: one module per verb, each handing plain values to the floors below and the answer to an ``Output``.

Owns: argument parsing, two ways of speaking (people, JSON), exit codes, progress bars. Does not own: any decision about
archives or settings. Invariant: standard output carries the answer and nothing else; errors and progress go to standard
error. Threads: none of its own.
"""
