"""Run `sottovoce` for `python -m sottovoce.cli`."""

import sys

from sottovoce.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
