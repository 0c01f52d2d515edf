"""What the scripts of hostile attempts share: the scene that they are run in, and how they tell what worked."""

import ctypes
import json
import os
import sys

SCENE = json.load(open(sys.argv[1]))
LIBC = ctypes.CDLL(None, use_errno=True)


def system_call(number, *arguments):
    """The result; negative numbers are errors of the kernel."""
    result = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(one) for one in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def secret(text):
    assert "the secret" in text


def report(attempts):
    """Make each attempt, and print by their names why they were refused; "" for those that have worked."""
    results = {}
    for attempt in attempts:
        try:
            attempt()
            results[attempt.__name__] = ""
        except (OSError, KeyError, AssertionError) as error:
            results[attempt.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(results), flush=True)
