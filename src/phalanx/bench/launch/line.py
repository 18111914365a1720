"""A cable as a program: it forwards frames late and loses some. `python line.py NEAR FAR`, the names of its two ends.

The ends are tap devices that it makes where it runs; whoever starts it moves them to where they belong. Each line on
its standard input, `DELAY_S LOST`, says for how long a frame is on its way from then on, and which part never arrives.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_MOST = 65536


class Line:
    """Two ends, and the frames that are on their way: when each arrives, at which end."""

    def __init__(self, near: int, far: int) -> None:
        self._other = {near: far, far: near}
        self._drawn = random.Random(7)
        self._on_way: deque[tuple[float, int, bytes]] = deque()
        self._delay_s = self._lost = 0.0

    def carry(self) -> None:
        """Until its standard input is closed."""
        said = b""
        while True:
            wait_s = max(0.0, self._on_way[0][0] - time.monotonic()) if self._on_way else None
            ready, _, _ = select.select([0, *self._other], [], [], wait_s)
            if 0 in ready:
                read = os.read(0, 4096)
                if not read:
                    return
                *lines, said = (said + read).split(b"\n")
                for line in lines:
                    self._delay_s, self._lost = map(float, line.split())
            for end in self._other.keys() & ready:
                self._take(end)
            self._hand_over()

    def _take(self, end: int) -> None:
        frame = os.read(end, FRAME_MOST)
        if self._drawn.random() >= self._lost:
            self._on_way.append((time.monotonic() + self._delay_s, self._other[end], frame))

    def _hand_over(self) -> None:
        now = time.monotonic()
        while self._on_way and self._on_way[0][0] <= now:
            _, end, frame = self._on_way.popleft()
            try:
                os.write(end, frame)
            except OSError:
                # The device is down: a cable that was pulled.
                continue


def tap(name: str) -> int:
    """A device of that name, whose frames are read and written here."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def main(near: str, far: str) -> None:
    line = Line(tap(near), tap(far))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    line.carry()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
