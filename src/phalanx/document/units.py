"""Numbers, durations and moments as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal

DURATION_MAX_MS = 10 * 365 * 86_400_000
TIME_MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_WRITTEN_MAX = 64
_WHOLE = r"(?:0|[1-9][0-9]{0,30}|[1-9][0-9]{0,2}(?:_[0-9]{3}){1,9})"
_INTEGER = re.compile(rf"[-+]?{_WHOLE}")
_NUMBER = re.compile(rf"[-+]?(?:{_WHOLE}(?:\.[0-9]{{0,30}})?|\.[0-9]{{1,30}})(?:[eE][-+]?[0-9]{{1,3}})?")
_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,12}}(?:\.[0-9]{{1,9}})?){unit})?" for unit in _UNIT_MS))
_CLOCK = re.compile(r"(?:([0-9]{1,5})-)?([0-9]{1,6}):([0-9]{2}):([0-9]{2})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def whole(text: str) -> int | None:
    """A whole number, or None if the text is not one."""
    return int(text) if _INTEGER.fullmatch(text) else None


def decimal(text: str) -> Decimal | None:
    """A finite number exactly as written, or None if the text is not one."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def duration_ms(text: str) -> int | None:
    """90s, 1h30m, 2d, 250ms, as Slurm has it 03:00:00 and 1-12:00:00; a plain number is seconds.

    None if the text is not a duration: 03:00 could be minutes or hours.
    """
    text = text.strip()
    if not text or len(text) > _WRITTEN_MAX or text[0] in "+-":
        return None
    seconds = decimal(text)
    if seconds is not None:
        return ceiling(seconds * 1000)
    match = _DURATION.fullmatch(text.replace(" ", ""))
    if match is None:
        return _clock_ms(text)
    parts = [(unit, amount) for unit, amount in match.groupdict().items() if amount]
    return sum(ceiling(Decimal(amount) * _UNIT_MS[unit]) for unit, amount in parts)


def _clock_ms(text: str) -> int | None:
    """Hours, minutes and seconds with colons between, and days with a dash before them."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    if minutes > 59 or seconds > 59 or (match[1] is not None and hours > 23):
        return None
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def time_ms(text: str, now_ms: int) -> int | None:
    """A time with its zone, seconds since 1970, or `+2h` from now. None if the text is neither."""
    text = text.strip()
    if not text or len(text) > _WRITTEN_MAX:
        return None
    if text.startswith("+"):
        delay_ms = duration_ms(text[1:])
        return None if delay_ms is None else now_ms + delay_ms
    seconds = decimal(text)
    if seconds is not None:
        return ceiling(seconds * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def ceiling(value: Decimal) -> int:
    """The next whole number."""
    return int(value.to_integral_value(ROUND_CEILING))
