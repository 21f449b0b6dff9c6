"""Place of the compiler's part: which nodes share a kernel, and its loop nest. Nothing here yet."""
