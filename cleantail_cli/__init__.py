"""The command line: runs the platform without a scheduler, with the code that the DAGs run."""

from cleantail_cli.app import main, run_and_exit

__all__ = ["main", "run_and_exit"]
