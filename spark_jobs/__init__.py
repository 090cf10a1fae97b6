"""The jobs: a command line in, a small JSON result out. The work is in `round`, and below it `engine` and `iceberg`."""
