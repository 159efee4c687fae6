"""`python -m anchorlens`."""

from anchorlens.cli import main

if __name__ == "__main__":
    main()
