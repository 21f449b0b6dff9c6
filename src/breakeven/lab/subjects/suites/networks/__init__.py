"""The networks of suite `models`: one file per architecture, the paper cited in it."""
