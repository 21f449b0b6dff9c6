"""Who compiles: one file per compiler, all behind the protocol of `compiler.py`."""
