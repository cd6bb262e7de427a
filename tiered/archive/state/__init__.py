"""What the log folds to: an ordered map of packed structs, read as typed values.

Owns: keys and layouts of the map, layers of changes above it, typed reads. Does not own: how a commit changes it
(``archive.fold``).
"""
