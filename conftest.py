"""What holds for the tests of all packages."""

from hypothesis import settings

# A loaded machine takes longer for one example than the 200 ms that hypothesis allows, and none of them measures time.
settings.register_profile("agentbox", deadline=None)
settings.load_profile("agentbox")
