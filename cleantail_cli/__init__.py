"""The command line: the platform without a scheduler, by the same code as the DAGs."""

from cleantail_cli.app import main, run_and_exit

__all__ = ["main", "run_and_exit"]
