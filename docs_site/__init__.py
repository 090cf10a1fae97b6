"""The documentation: its generated parts, and the code that makes the site of `make docs` from `docs/`."""
