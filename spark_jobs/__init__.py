"""One file per job: argv in, a small JSON result out. Table reads and writes are all in `tables`."""
