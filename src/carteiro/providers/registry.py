"""Providers by the name that a service carries in the catalog."""

from collections.abc import Callable

from carteiro.domain.outcomes import Parsed
from carteiro.providers.contract import Provider
from carteiro.providers.infobip import codec as infobip
from carteiro.providers.infobip import codes as infobip_codes
from carteiro.providers.infobip.client import InfobipProvider
from carteiro.providers.meta import codes as meta_codes
from carteiro.providers.meta import webhook as meta
from carteiro.providers.meta.client import MetaProvider

_PARSERS: dict[str, Callable[[bytes], Parsed]] = {
    InfobipProvider.name: infobip.parse_webhook,
    MetaProvider.name: meta.parse_webhook,
}

GRAPH_VERSION = "v26.0"
"""Of the Graph API, where the address names none and nothing else is set."""


def open_provider(
    name: str,
    *,
    base_url: str,
    api_key: str,
    timeout_s: float = 30.0,
    max_connections: int = 128,
    graph_version: str = GRAPH_VERSION,
) -> Provider:
    """Open a provider's client; it connects when first used. `timeout_s` is the hard total deadline of one call.

    Raises LookupError for an unknown name, ValueError for an unusable address.
    """
    match name:
        case InfobipProvider.name:
            return InfobipProvider(
                base_url=base_url, api_key=api_key, timeout_s=timeout_s, max_connections=max_connections
            )
        case MetaProvider.name:
            return MetaProvider(
                base_url=base_url,
                api_key=api_key,
                timeout_s=timeout_s,
                max_connections=max_connections,
                graph_version=graph_version,
            )
        case _:
            raise LookupError(f"no provider is called {name!r}")


def parser_of(name: str) -> Callable[[bytes], Parsed]:
    """The reader of a provider's webhook bodies; it never raises. Raises LookupError for an unknown name."""
    try:
        return _PARSERS[name]
    except KeyError:
        raise LookupError(f"no provider is called {name!r}") from None


def name_codes() -> dict[str, str]:
    """Every code that a provider may give a failed message -> its name there, in words."""
    names = {meaning.code: meaning.name for meaning in meta_codes.CODES.values()}
    names |= {
        known.code: known.name for table in (infobip_codes.STATUSES, infobip_codes.ERRORS) for known in table.values()
    }
    return {code: name.removeprefix("EC_").replace("_", " ").lower() for code, name in names.items()}
