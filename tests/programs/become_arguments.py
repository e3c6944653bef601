"""Executes its arguments: with it workers of --preload are forks, also where a test runs no Python scripts."""

import os
import sys

os.execvp(sys.argv[1], sys.argv[1:])
