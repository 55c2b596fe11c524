"""`python -m resile` is the command line."""

from resile.surfaces.cli.main import main

if __name__ == "__main__":
    main()
