"""Sinks that an agent delivers to itself: FILE, PRINT and VOID, and the seam for those on a log."""
