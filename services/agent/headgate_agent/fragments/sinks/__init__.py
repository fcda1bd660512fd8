"""Sinks that an agent delivers to itself: FILE, PRINT, VOID, TOPIC and KAFKA."""
