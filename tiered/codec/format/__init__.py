"""The archive's own objects: blocks, data objects, directories, key indexes, commits and their edits.

Owns: every byte that the archive stores beside the records themselves. Does not own: what a record says (``codec.record``),
what the edits mean (``archive.fold``).
"""
