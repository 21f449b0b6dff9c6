"""Terminal tables and the self-contained page."""
