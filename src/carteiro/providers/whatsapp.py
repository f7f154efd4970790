"""WhatsApp's own words for numbers, templates and limits, which every provider passes on."""

import re
from collections.abc import Mapping
from typing import Any

from carteiro.domain.standing import Standing, TemplateState, Tier
from carteiro.providers.foreign import read_word

STANDINGS: Mapping[str, Standing] = {
    "CONNECTED": Standing.GOOD,
    # A warning: the number still sends.
    "FLAGGED": Standing.GOOD,
    "BANNED": Standing.STOPPED,
    "DELETED": Standing.STOPPED,
    "DISCONNECTED": Standing.STOPPED,
    "RATE_LIMITED": Standing.STOPPED,
    "RESTRICTED": Standing.STOPPED,
}
"""Of a number. Any other word is unclear."""
USABLE = frozenset({"APPROVED", "REINSTATED", "FLAGGED"})
"""A template in any other state is not sent."""

_NUMBER = re.compile(r"([0-9]{1,6})(K|M)?", re.ASCII)
_FACTORS = {None: 1, "K": 1_000, "M": 1_000_000}
_LIMIT_MAX = 2_000_000_000


def read_limit(word: str, prefix: str) -> Tier:
    """`prefix` and a number of messages a day, such as LIMIT_2K; any other word is not understood."""
    found = _NUMBER.fullmatch(word, len(prefix)) if word.startswith(prefix) else None
    if found is None:
        return Tier(word, None, known=False)
    return Tier(word, min(_LIMIT_MAX, int(found[1]) * _FACTORS[found[2]]))


def read_template(row: Any) -> TemplateState | None:
    """A row of a list of templates; None when it does not say which or in what state."""
    if not isinstance(row, dict):
        return None
    name, language, word = read_word(row.get("name")), read_word(row.get("language")), read_word(row.get("status"))
    if name is None or language is None or word is None:
        return None
    return TemplateState(name, language, word, word in USABLE, read_word(row.get("id")))
