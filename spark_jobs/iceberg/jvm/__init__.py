"""How the JVM is started, and asked for much by few calls and without waiting."""
