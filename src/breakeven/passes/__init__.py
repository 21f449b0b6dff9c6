"""Place of the compiler's part: tensor program to tensor program. Nothing here yet."""
