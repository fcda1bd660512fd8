"""Runs of compute fragments as Structured Streaming queries."""
