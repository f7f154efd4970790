import pytest

from carteiro.domain.outcomes import Parsed
from carteiro.providers.registry import open_provider, parser_of


async def test_a_provider_is_opened_by_its_name() -> None:
    provider = open_provider("infobip", base_url="xyz12.api.infobip.com", api_key="key")
    assert provider.name == "infobip"
    assert provider.has_log
    await provider.close()


def test_an_unknown_name_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match="nobody"):
        open_provider("nobody", base_url="https://example.com", api_key="key")
    with pytest.raises(LookupError, match="nobody"):
        parser_of("nobody")


@pytest.mark.parametrize(
    "base_url", ["", "https://", "ftp://example.com", "https://example.com?a=b", "https://user:pw@example.com"]
)
def test_an_unusable_address_is_refused_at_once(base_url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        open_provider("infobip", base_url=base_url, api_key="key")


def test_a_webhook_is_read_without_opening_a_provider() -> None:
    assert parser_of("infobip")(b"nonsense") == Parsed(malformed=1)
