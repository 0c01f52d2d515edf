"""`python -m agentbox.cli`: the same as the `agentbox` command.

Never imports anything from the working directory, which Python puts first without -P: an agent may have written there.
"""

import os
import sys


def _drop_working_directory() -> None:
    try:
        here = os.getcwd()
    except OSError:
        return  # it is gone, and Python has put none there
    if sys.path[:1] == [here] and not __file__.startswith(here + os.sep):  # else it is where agentbox itself is
        del sys.path[0]


if __name__ == "__main__" and not sys.flags.safe_path:
    _drop_working_directory()

from agentbox.cli.main import main  # noqa: E402 (only after that)

if __name__ == "__main__":
    sys.exit(main())
