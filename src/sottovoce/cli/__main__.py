"""Let `python -m sottovoce.cli` be `sottovoce`."""

import sys

from sottovoce.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
