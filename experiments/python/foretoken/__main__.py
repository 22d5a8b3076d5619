"""python -m foretoken: the program of this name that came with the package."""

import os
import sys
import sysconfig
from pathlib import Path

from . import Error


def program():
    """The program beside this Python."""
    found = Path(sysconfig.get_path("scripts")) / "foretoken"
    if not found.is_file():
        raise Error(f"the program is not at {found}: install the package again (pip install .)")
    return found


if __name__ == "__main__":
    path = program()
    os.execv(path, [str(path), *sys.argv[1:]])
