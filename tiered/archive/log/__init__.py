"""The log of commits: the archive's identity, its reader, its one writer, the writer's local files."""
