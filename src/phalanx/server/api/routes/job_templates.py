"""The route of job templates."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Response

from phalanx.server.api.auth import SignedIn
from phalanx.server.api.described import answers
from phalanx.server.api.models.found import TemplateListModel
from phalanx.server.api.pages import as_list
from phalanx.templates.gallery import templates

router = APIRouter(tags=["jobs"])


@router.get("/templates", responses=answers(TemplateListModel))
async def list_templates(account: SignedIn) -> Response:
    """List job files that work as they are, to start from."""
    return as_list([asdict(template) for template in templates()])
