"""Requests of browsers: the cookie of a session, and from which site they come."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request, Response

from phalanx.server.options import Options
from phalanx.server.refusal import Refusal

COOKIE = "phalanx_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""The name of the cookie over HTTPS: browsers take it from this very host only, never from a neighbour or in clear."""

OWN_SITE = ("same-origin", "none")
"""What a browser says in Sec-Fetch-Site of our own pages, and of what its user typed."""


def cookie_of(request: Request, options: Options) -> str:
    """What stands for a session; empty if there is none."""
    return request.cookies.get(_name(request, options), "")


def set_cookie(response: Response, request: Request, options: Options, token: str) -> None:
    """Has the browser keep a session until it is closed: when it ends is known here."""
    secure = is_secure(request, options)
    response.set_cookie(_name(request, options), token, httponly=True, samesite="strict", secure=secure, path="/")


def drop_cookie(response: Response, request: Request, options: Options) -> None:
    """Has the browser forget a session."""
    secure = is_secure(request, options)
    response.delete_cookie(_name(request, options), httponly=True, samesite="strict", secure=secure, path="/")


def is_secure(request: Request, options: Options) -> bool:
    """Whether the browser speaks HTTPS, with the server or with a proxy in front of it."""
    return request.url.scheme == "https" or options.url.startswith("https://")


def need_same_origin(request: Request, options: Options) -> None:
    """Refuses a request that a page of another site makes."""
    site = request.headers.get("sec-fetch-site", OWN_SITE[0])
    origin = request.headers.get("origin")
    if site not in OWN_SITE or (origin is not None and _host(origin) not in _own_hosts(request, options)):
        raise Refusal("forbidden", "this came from a page of another site: nothing was changed")


def _own_hosts(request: Request, options: Options) -> tuple[str, ...]:
    return (request.headers.get("host", "").lower(), _host(options.url))


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name(request: Request, options: Options) -> str:
    if options.shown:
        # Cookies of one host are those of all its ports: a server of the same machine keeps its own.
        return f"{COOKIE}_{options.port}"
    return SECURE_COOKIE if is_secure(request, options) else COOKIE
