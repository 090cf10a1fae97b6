"""`python -m cleantail_cli`: the command line where its script is not on PATH."""

from cleantail_cli.app import run_and_exit

run_and_exit()
