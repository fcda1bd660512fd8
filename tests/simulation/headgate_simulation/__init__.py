"""Deterministic simulation of the Headgate suite. docs/simulation.md says how it works and how to add to it."""
