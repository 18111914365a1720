"""Whether bookings lie on the same devices, or need anything else of the same node."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.capacity import Booking
from phalanx.engine.state.records import AttemptRecord


def without(bookings: Iterable[Booking], others: Iterable[Booking]) -> list[Booking]:
    """Bookings less the devices that other bookings have."""
    devices: dict[int, int] = {}
    for booking in others:
        devices[booking.node] = devices.get(booking.node, 0) | booking.devices
    return [booking._replace(devices=booking.devices & ~devices.get(booking.node, 0)) for booking in bookings]


def meet(bookings: Iterable[Booking], reserved: Iterable[Booking]) -> bool:
    """Whether two lie on the same devices somewhere."""
    devices: dict[int, int] = {}
    for booking in bookings:
        devices[booking.node] = devices.get(booking.node, 0) | booking.devices
    return any(devices.get(booking.node, 0) & booking.devices for booking in reserved)


def is_in_the_way(attempt: AttemptRecord, booking: Booking) -> bool:
    """Whether an attempt holds what is booked on a node: devices of it, or anything else that both need there."""
    return any(
        own.devices & booking.devices or (own.needs and booking.needs)
        for own in attempt.bookings
        if own.node == booking.node
    )


def draw_on_the_same(bookings: Iterable[Booking], reserved: Iterable[Booking]) -> bool:
    """Whether two need anything but devices of the same node."""
    nodes = {booking.node: None for booking in bookings if booking.needs}
    return any(booking.node in nodes for booking in reserved if booking.needs)
