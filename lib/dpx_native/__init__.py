"""The programs of the wheel: dpxplan, and dpx, which is dpxplan with `dpx record` beside it.

The folder holds dpxplan, libdpx.so.0 and the libraries that they need; tools/wheel.py puts them there.
"""

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _run(arguments):
    program = str(_HERE / "dpxplan")
    os.execv(program, [program, *arguments])


def dpxplan():
    """The console script dpxplan."""
    _run(sys.argv[1:])


def dpx():
    """The console script dpx: `dpx record` is Python's, all else dpxplan's."""
    if sys.argv[1:2] == ["record"]:
        os.execv(sys.executable, [sys.executable, "-m", "dpx.record", *sys.argv[2:]])
    _run(sys.argv[1:])
