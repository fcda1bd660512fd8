"""Node-local sources: FILE, TCP, GENERATOR, and samples that the agent itself takes."""
