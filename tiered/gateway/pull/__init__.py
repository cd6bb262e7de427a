"""Pulls: the broker's answer judged, compared with the archive, replaced."""
