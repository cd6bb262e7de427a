"""An archive opened for reading: objects, runs, look-ups, verification."""
