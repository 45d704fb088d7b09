"""`python -m logboom` is the `logboom` command."""

from logboom.cli.__main__ import main

if __name__ == "__main__":
    main()
