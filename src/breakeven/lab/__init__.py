"""The laboratory: measures any deep-learning compiler on any model, with no favour."""
