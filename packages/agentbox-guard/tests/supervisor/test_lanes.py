"""Lanes: each thread of a process has its own, also one that comes when another has ended."""


def test_a_thread_that_follows_another_has_a_lane_of_its_own(sandbox):
    """The system gives the ident of a thread that has ended to the next; that is another thread all the same."""
    done = sandbox.python(
        """
        import threading
        import agentbox.client as box
        def act():
            box.now()
            open("data/a.txt").read()
        for _ in range(3):
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
        """,
        policy="read: ./data\n",
    )
    assert done.status == 0, done.err
    assert [e["lane"] for e in done.of("effect")] == [e["lane"] for e in done.of("observe", "fs.read")]
    assert len({e["lane"] for e in done.of("effect")}) == 3
