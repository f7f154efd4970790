"""The second step of a batch: what is sent once to a contact who answers the first.

The structs are the wire format, and what the batch keeps of it. A free-form message: no template, no placeholders.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from carteiro.domain.errors import FieldError
from carteiro.domain.templates import is_https_url

TEXT_MAX = 4_096
CAPTION_MAX = 1_024
"""Meta's; Infobip takes longer ones."""
FILENAME_MAX = 240

WINDOW_CLOSED = "WINDOW_CLOSED"
"""The code of a follow-up that could not be sent while the contact's service window was open."""


class MediaType(StrEnum):
    IMAGE = "image"
    VIDEO = "video"
    DOCUMENT = "document"


class Media(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    type: MediaType
    url: str
    caption: str | None = None
    filename: str | None = None
    """Of a document: the name that the contact sees."""


class FollowUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Either of the two."""

    text: str | None = None
    media: Media | None = None

    @property
    def content(self) -> dict[str, Any]:
        """As the batch keeps it: what was given and nothing else."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


def follow_up_faults(asked: FollowUp) -> Iterator[FieldError]:
    """What is wrong with it."""
    if (asked.text is None) == (asked.media is None):
        yield FieldError("/follow_up", "text-or-media", "a text or media, one of the two")
    if asked.text is not None and not (len(asked.text) <= TEXT_MAX and asked.text.strip()):
        yield FieldError("/follow_up/text", "bad-length", f"1 to {TEXT_MAX:,} characters, not only spaces")
    media = asked.media
    if media is None:
        return
    if not is_https_url(media.url):
        yield FieldError("/follow_up/media/url", "not-https", "must be an https URL of 2,048 characters at most")
    if media.caption is not None and not 1 <= len(media.caption) <= CAPTION_MAX:
        yield FieldError("/follow_up/media/caption", "bad-length", f"1 to {CAPTION_MAX:,} characters")
    if media.filename is not None and media.type is not MediaType.DOCUMENT:
        yield FieldError("/follow_up/media/filename", "unexpected", "only a document has a file name")
    elif media.filename is not None and not 1 <= len(media.filename) <= FILENAME_MAX:
        yield FieldError("/follow_up/media/filename", "bad-length", f"1 to {FILENAME_MAX} characters")


def free_form_of(content: Mapping[str, Any]) -> tuple[str | None, dict[str, str] | None]:
    """(text, media) of a batch's kept follow-up, as `FreeForm` takes them."""
    media = content.get("media")
    if media is None:
        return content["text"], None
    named = {"type": media["type"].upper(), "mediaUrl": media["url"]}
    return None, named | {name: media[name] for name in ("caption", "filename") if name in media}
