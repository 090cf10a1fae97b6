"""The documentation: its generated parts, and what turns `docs/` into the site that `make docs` builds."""
