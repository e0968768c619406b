"""`python -m supervisor.cli`: the same as `supervise`, for where the script is not in PATH."""

from supervisor.cli import main

main()
