"""The command line's tests use the kernel's fixtures."""

from tests.cleantail.conftest import orders_table, project

__all__ = ["orders_table", "project"]
