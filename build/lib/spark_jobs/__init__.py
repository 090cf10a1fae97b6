"""One file per job: argv in, a small JSON result out. The work is in `round`, and beneath it `engine` and `iceberg`."""
