"""Documents: YAML or JSON text as a tree in which every value knows its line and is read as what was asked for.

No file is opened here: the caller hands in the text, and the name by which errors call it.
"""

from __future__ import annotations

from phalanx.document.error import DocumentError
from phalanx.document.field import Field, Fields, decode, read_document
from phalanx.document.tree import Limits

__all__ = ["DocumentError", "Field", "Fields", "Limits", "decode", "read_document"]
