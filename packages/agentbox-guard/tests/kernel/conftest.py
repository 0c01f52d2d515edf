"""Makes `confined_child`, which runs pieces of these tests in forked children, importable."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
