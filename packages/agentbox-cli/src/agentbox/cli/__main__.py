"""`python -m agentbox.cli`: the same as the `agentbox` command.

Never holds anything but this call.
"""

import sys

from agentbox.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
