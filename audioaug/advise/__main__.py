"""Run the advisor as a command."""

import gc
import sys

from audioaug.advise.cli import main

code = main()
gc.freeze()  # or Python looks through all of torch and librosa once more before it ends: a second
sys.exit(code)
