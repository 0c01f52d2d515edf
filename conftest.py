"""What holds for the tests of all packages."""

import signal

from hypothesis import settings

# A loaded machine takes longer for one example than the 200 ms that hypothesis allows, and none of them measures time.
settings.register_profile("agentbox", deadline=None)
settings.load_profile("agentbox")

# nohup(1) and background jobs of a shell leave signals ignored, which every program that a test starts would inherit.
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
