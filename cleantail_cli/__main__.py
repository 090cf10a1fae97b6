"""`python -m cleantail_cli`: runs the command line if its script is not on PATH."""

from cleantail_cli.app import run_and_exit

run_and_exit()
