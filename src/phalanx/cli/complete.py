"""Shell completion of names that live on the server. A shell waits for it, so it gives up soon and never complains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PATIENCE_S = 1.0
COUNT_MAX = 100

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def live_jobs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids and names of jobs that are not over."""
    from phalanx.cli.job_rows import LIVE

    words: dict[str, str | None] = {}
    for job in _listed("/jobs", state=LIVE):
        described = f"{job['name'] or job['id']}, {job['state']}"
        for word in (job["array_of"], job["id"], job["name"]):
            words.setdefault(word, described)
    return matching(words, incomplete)


def node_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of nodes."""
    return matching({node["name"]: node["health"] for node in _listed("/nodes")}, incomplete)


def queue_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Paths of queues."""
    return matching({queue["name"]: None for queue in _listed("/queues")}, incomplete)


def policy_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of policies, which need no server."""
    from phalanx.policy.registry import known

    return matching(dict.fromkeys(known()), incomplete)


def template_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of job templates."""
    from phalanx.templates.gallery import templates

    return matching({each.name: each.summary for each in templates()}, incomplete)


def matching(words: Mapping[str, str | None], incomplete: str) -> list[CompletionItem]:
    """The words that begin so, each with what a shell may show beside it."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, help=about) for word, about in words.items() if word and word.startswith(incomplete)]


def job_argument(function: Decorated) -> Decorated:
    """Gives a verb the job it is about, by id or unique name."""
    return click.argument("job", metavar="ID", shell_complete=live_jobs)(function)


def _listed(path: str, **query: str) -> list[dict[str, str]]:
    from phalanx.cli.client import Client
    from phalanx.cli.context import current_context

    client = None
    try:
        client = Client(current_context(), PATIENCE_S, tries_max=1)
        return list(client.items(path, COUNT_MAX, **query))
    except Exception:
        return []
    finally:
        if client is not None:
            client.close()
