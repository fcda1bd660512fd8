"""The commands of `headgate`, a file each."""
