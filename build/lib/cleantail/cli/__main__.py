"""`python -m cleantail.cli`: the command line where its script is not on PATH."""

from cleantail.cli.app import run_and_exit

run_and_exit()
