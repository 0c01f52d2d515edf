"""`python -m agentbox.cli`: the same as the `agentbox` command.

Never imports anything from the working directory, which Python puts first without -P: an agent may have written there.
"""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()] and not __file__.startswith(sys.path[0] + os.sep):
        del sys.path[0]
    from agentbox.cli.main import main

    sys.exit(main())
