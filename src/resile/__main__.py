"""`python -m resile` is the command line."""

from resile.cli.main import main

if __name__ == "__main__":
    main()
