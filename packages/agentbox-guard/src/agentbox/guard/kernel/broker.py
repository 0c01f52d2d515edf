"""The connect broker: makes outside, on behalf of a process in the empty network namespace, the connections that the
policy allows.

It decides on its own copy of the address only, resolves and pins names itself, and never leads a name to this machine
or a private network unless a rule names that address.

Contract (implementation follows):
    Request(op, pid, sockaddr: bytes, kind, family, nonblocking, template)   op: net.connect | net.send; kind SOCK_STREAM|SOCK_DGRAM;
                                     template: a descriptor of the asker's socket (pidfd_getfd), for its options; may be -1; not closed
    Broker(desk, synthetic, jobs)
        .judge(request) -> Answer    at once, no waiting, nothing done: action "continue" | "fail" (errno) | "deny" (Denial) | "dial"
                                     with .args as recorded (host, address, port) ; `continue`: the address is inside the namespace
        .dial(answer, then) -> None  then(answer) on the loop thread with .socket (inject over the descriptor, then close) and .errno
                                     (0, or EINPROGRESS for a non-blocking asker: inject and answer that), or no socket and .errno
    Traffic()                        bytes of finished connections, by the kernel's own notices (sock_diag(7)); no descriptor is held open
        .fileno(); .watch(socket, key); .read() -> [(key, sent, received)]; .finish() -> the same for those still open
"""
