"""Built-in subjects: suites `fusion`, `compute` and `models`, each at three sizes."""
