"""Start the JVM, and read much from it with few calls and short waits."""
