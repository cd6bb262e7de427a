"""Checkpoints: the state written as shards, and read back whole or only the shards that a question touches."""
