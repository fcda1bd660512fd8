"""The agent: runs fragments and answers for what is local to its node."""
