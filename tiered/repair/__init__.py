"""Mending a log with a damaged or lost commit from what is left: the local state, a later checkpoint, the objects themselves.

Nothing is ever deleted or written over. What is mended is put beside the damage, create-only, and was folded before: it fits
what lies before it and everything that comes after.
"""
