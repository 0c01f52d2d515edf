"""Tests as whoever runs them and as an ordinary user: one fixture for all whose scene can be set for either."""

import os

import pytest

ORDINARY = 1000


def source_folders():
    """The folders that agentbox is imported from."""
    import agentbox

    return [os.path.dirname(path) for path in agentbox.__path__]


def reachable(path):
    """Whether everybody may enter all folders on the way."""
    while path != "/":
        if not os.stat(path).st_mode & 0o001:
            return False
        path = os.path.dirname(path)
    return True


def scenes(make, ordinary=ORDINARY):
    """A fixture that gives what `make` makes of a user id, None for the own one, and closes it."""

    @pytest.fixture(params=[None, ordinary], ids=["as it is", "ordinary"])
    def scene(request):
        if request.param is not None and os.geteuid() != 0:
            pytest.skip("only root can become another user")
        if request.param is not None and not all(reachable(path) for path in source_folders()):
            pytest.skip("the checkout cannot be read by an ordinary user")
        made = make(request.param)
        yield made
        made.close()

    return scene
