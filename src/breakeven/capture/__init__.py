"""Place of the compiler's part: from PyTorch to tensor programs. Nothing here yet."""
