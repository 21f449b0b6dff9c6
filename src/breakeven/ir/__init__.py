"""Place of the compiler's part: tensor programs and loop programs. Nothing here yet."""
