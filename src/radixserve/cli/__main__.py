"""`python -m radixserve.cli`: the command line where the console script is not installed."""

from radixserve.cli import main

main()
