"""Which cells answer which question, and what their records say."""
