"""Place of the compiler's part: loop programs to LLVM IR. Nothing here yet."""
