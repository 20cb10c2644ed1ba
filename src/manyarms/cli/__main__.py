"""`python -m manyarms.cli` is `manyarms`."""

import sys

from manyarms.cli import main

sys.exit(main())
