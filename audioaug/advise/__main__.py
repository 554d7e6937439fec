"""Run the advisor as a command."""

import sys

from audioaug.advise.cli import main

sys.exit(main())
