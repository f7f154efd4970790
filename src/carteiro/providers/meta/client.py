"""The Cloud API over HTTP. It keeps no log that could be asked for a message, and takes no id of ours that would make a
second call harmless: what is not answered stays unknown until a receipt settles it.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import httpx

from carteiro.domain.outcomes import FreeForm, Outcome, Outgoing, Parsed
from carteiro.domain.standing import SenderState, TemplateState
from carteiro.providers.contract import LookUp, MessageId, StatesUnreadable
from carteiro.providers.meta import codec, states, webhook
from carteiro.providers.meta.answers import read_answer
from carteiro.providers.transport import Answer, Transport, address, name_failure, read_failure

SENDER_FIELDS = "id,status,quality_rating,whatsapp_business_manager_messaging_limit"
TEMPLATE_FIELDS = "name,language,status,category"
TEMPLATES_PAGE = 200
PAGES_MAX = 100

_VERSIONED = re.compile(r"/v\d+\.\d+\Z")


class MetaProvider:
    """One token of the Cloud API. Senders are named by their phone_number_id."""

    name = "meta"
    has_log = False
    messages_per_request_max = 1

    def __init__(
        self, *, base_url: str, api_key: str, timeout_s: float, max_connections: int, graph_version: str
    ) -> None:
        """`graph_version` counts where the address does not end in one. Raises ValueError for an unusable address."""
        path = urlsplit(base_url).path.rstrip("/")
        self._base_url = base_url if _VERSIONED.search(path) else f"{base_url.rstrip('/')}/{graph_version}"
        address(self._base_url, "/")
        self._transport = Transport(
            authorization=f"Bearer {api_key}", timeout_s=timeout_s, max_connections=max_connections
        )
        self._urls: dict[str, httpx.URL] = {}

    async def submit(self, messages: Sequence[Outgoing]) -> list[Outcome]:
        """One call a message: Meta takes no more."""
        if len(messages) == 1:
            return [await self._post(messages[0].sender, codec.encode_send(messages[0]))]
        return list(
            await asyncio.gather(*(self._post(message.sender, codec.encode_send(message)) for message in messages))
        )

    async def submit_free(self, message: FreeForm) -> Outcome:
        return await self._post(message.sender, codec.encode_free(message))

    async def look_up(self, ids: Sequence[MessageId], *, followups: bool = False) -> LookUp:
        """Nothing is found, and nothing proven absent."""
        return LookUp()

    async def read_senders(self, senders: Sequence[str]) -> list[SenderState]:
        """One call a number. One that the token does not reach is left out."""
        found: list[SenderState] = []
        for sender in senders:
            response = await self._get(f"/{sender}", {"fields": SENDER_FIELDS})
            if response.status_code in {400, 404}:
                continue
            state = states.read_sender(response.content) if response.status_code == 200 else None
            if state is None:
                raise StatesUnreadable(f"HTTP {response.status_code}")
            found.append(state)
        return found

    async def read_templates(self, account: str) -> list[TemplateState]:
        found: list[TemplateState] = []
        params = {"fields": TEMPLATE_FIELDS, "limit": str(TEMPLATES_PAGE)}
        for _ in range(PAGES_MAX):
            response = await self._get(f"/{account}/message_templates", params)
            page = states.read_templates(response.content) if response.status_code == 200 else None
            if page is None:
                raise StatesUnreadable(f"HTTP {response.status_code}")
            rows, after = page
            found += rows
            if after is None:
                return found
            params["after"] = after
        raise StatesUnreadable(f"more than {PAGES_MAX} pages of templates")

    def parse_webhook(self, body: bytes) -> Parsed:
        return webhook.parse_webhook(body)

    async def close(self) -> None:
        await self._transport.close()

    async def _post(self, sender: str, body: bytes) -> Outcome:
        url = self._urls.get(sender)
        if url is None:
            url = self._urls[sender] = address(self._base_url, f"/{sender}/messages")
        try:
            response = await self._transport.post(url, body)
        except Exception as error:
            return read_failure(error)
        return read_answer(response.status_code, response.content, response.headers.get("retry-after"))

    async def _get(self, path: str, params: Mapping[str, str]) -> Answer:
        try:
            return await self._transport.get(address(self._base_url, path, params))
        except Exception as error:
            raise StatesUnreadable(name_failure(error)) from error
