"""What training jobs are made of, as small processes: `actor.py MODE [ARG...]`. Standard library only, -I -S.

Every process says `NAME PID` on its output when it is in place.
"""

import ctypes
import os
import signal
import sys
import threading
import time

libc = ctypes.CDLL(None)
SYS_EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]


def say(name: str) -> None:
    os.write(1, f"{name} {os.getpid()}\n".encode())


def rest() -> None:
    while True:
        signal.pause()


def fork() -> bool:
    """True in the child."""
    return os.fork() == 0


def wipe_environment() -> None:
    """What a program does that writes its title over its arguments and its environment."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    ctypes.memset(start, 0, end - start)


def worker(name: str = "worker") -> None:
    """A session of its own, as torchrun gives to its workers."""
    os.setsid()
    say(name)
    rest()


def daemon(name: str = "daemon") -> None:
    """Forked twice: its parent is gone."""
    if fork():
        os.setsid()
        if fork():
            say(name)
            rest()
        os._exit(0)
    os.wait()


def main(mode: str, *args: str) -> None:
    if mode == "rest":
        say("leader")
        rest()
    elif mode == "workers":
        for number in range(int(args[0])):
            if fork():
                worker(f"worker{number}")
        say("leader")
        rest()
    elif mode == "daemon":
        daemon()
        say("leader")
        rest()
    elif mode == "daemon-and-gone":
        daemon()
    elif mode == "titled":
        if fork():
            os.setsid()
            wipe_environment()
            if fork():
                os.setsid()
                say("grandchild")
                rest()
            say("titled")
            rest()
        say("leader")
        rest()
    elif mode == "headless":  # the main thread ends, another holds the process
        threading.Thread(target=lambda: (say("headless"), time.sleep(1000))).start()
        libc.syscall(SYS_EXIT, 0)
    elif mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("deaf")
        rest()
    elif mode == "hear":
        signal.signal(signal.SIGTERM, lambda *_: (say("heard"), os._exit(7)))
        say("leader")
        rest()
    elif mode == "group":  # a leader and a child of the same process group; a worker outside of it
        if fork():
            signal.signal(signal.SIGTERM, lambda *_: (say("child-heard"), os._exit(0)))
            say("child")
            rest()
        if fork():
            worker()
        signal.signal(signal.SIGTERM, lambda *_: (say("heard"), os._exit(0)))
        say("leader")
        rest()
    elif mode == "hop":  # a new process id every few milliseconds
        say("leader")
        os.setsid() if os.getpid() != os.getsid(0) else None
        while True:
            time.sleep(0.01)
            if not fork():
                os._exit(0)
    elif mode == "storm":  # N processes that hide and, when told to end, fork once more
        count, seed, fifo = int(args[0]), int(args[1]), args[2]
        os.open(fifo, os.O_WRONLY)  # all of them hold it: it is at its end when the last one is gone
        import random

        def die(*_: object) -> None:
            if fork():
                os.setsid() if dice.random() < 0.5 else None
                wipe_environment() if dice.random() < 0.5 else None
                rest()
            os._exit(0)

        for number in range(count):
            if fork():
                dice = random.Random(seed + number)
                if dice.random() < 0.5:
                    os.setsid()
                if dice.random() < 0.3 and not fork():
                    os._exit(0)  # an orphan goes on
                if dice.random() < 0.5:
                    wipe_environment()
                if dice.random() < 0.2:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                else:
                    signal.signal(signal.SIGTERM, die)
                say(f"storm{number}")
                while True:
                    time.sleep(1000)
        say("leader")
        rest()
    elif mode == "writer":
        with open(args[0], "wb") as file, open(args[1], "rb"):
            file.write(b"x" * 100)
            file.flush()
            say("writer")
            rest()
    elif mode == "exec":  # the given command, below us
        if fork():
            os.execvp(args[0], args)
        say("leader")
        rest()
    elif mode == "hold-lock":  # what makes a supervisor one: the run's lock, open-file-description style
        import fcntl
        import struct

        fd = os.open(args[0], os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        if fork():
            say("below-lock")
            rest()
        say("lock-holder")
        rest()
    else:
        raise SystemExit(f"no such mode: {mode}")


if __name__ == "__main__":
    main(*sys.argv[1:])
