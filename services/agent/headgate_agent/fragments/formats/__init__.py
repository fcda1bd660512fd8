"""How bytes become rows, and rows bytes."""
