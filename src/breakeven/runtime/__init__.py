"""Place of the compiler's part: machine code, call-outs and artifacts. Nothing here yet."""
