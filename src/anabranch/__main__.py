"""`python -m anabranch`: the command line, where its program is not on the path."""

from anabranch.cli.main import main

if __name__ == "__main__":
    main()
