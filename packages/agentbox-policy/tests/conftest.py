"""Where the tests of this distribution find its files."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def package() -> Path:
    """The folder of the distribution."""
    return PACKAGE
