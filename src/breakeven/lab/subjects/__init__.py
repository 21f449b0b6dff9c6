"""What is compiled: one file per kind of source, and the built-in suites."""
