"""headgate: the command line of the suite."""
