"""Infobip over HTTP."""

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import httpx

from carteiro.domain.outcomes import (
    Fact,
    FreeForm,
    Outcome,
    Outgoing,
    Parsed,
    followup_key,
    message_key,
    parse_followup_key,
    parse_message_key,
)
from carteiro.domain.standing import SenderState, TemplateState
from carteiro.providers.contract import LogUnreachable, LookUp, MessageId, StatesUnreadable
from carteiro.providers.foreign import decode_json, rows_of
from carteiro.providers.infobip import codec, states
from carteiro.providers.infobip.answers import read_answer, read_free_answer
from carteiro.providers.transport import Answer, Transport, address, name_failure, read_failure

LOG_PAGE = 50
"""Ids that one call to the log asks for."""
SENDERS_PAGE = 100
"""Senders that one call asks about."""


class InfobipProvider:
    """One Infobip account: its address and key. Connections are opened when first needed and kept for a few seconds."""

    name = "infobip"
    has_log = True
    messages_per_request_max = 100

    def __init__(self, *, base_url: str, api_key: str, timeout_s: float, max_connections: int) -> None:
        """`timeout_s` is the total deadline of a call. Raises ValueError for an unusable address."""
        self._base_url = base_url
        self._send_url = address(base_url, "/whatsapp/1/message/template")
        self._log_url = address(base_url, "/whatsapp/2/logs")
        self._quality_url = address(base_url, "/whatsapp/1/senders/quality")
        self._transport = Transport(
            authorization=f"App {api_key}", timeout_s=timeout_s, max_connections=max_connections
        )

    async def submit(self, messages: Sequence[Outgoing]) -> list[Outcome]:
        try:
            response = await self._transport.post(self._send_url, codec.encode_send(messages))
        except Exception as error:
            return [read_failure(error)] * len(messages)
        keys = [message_key(message.batch_id, message.seq) for message in messages]
        return read_answer(response.status_code, response.content, response.headers.get("retry-after"), keys)

    async def submit_free(self, message: FreeForm) -> Outcome:
        url = address(self._base_url, f"/whatsapp/1/message/{codec.free_form_type(message)}")
        try:
            response = await self._transport.post(url, codec.encode_free(message))
        except Exception as error:
            return read_failure(error)
        key = followup_key(message.batch_id, message.seq)
        return read_free_answer(response.status_code, response.content, response.headers.get("retry-after"), key)

    async def look_up(self, ids: Sequence[MessageId], *, followups: bool = False) -> LookUp:
        facts: list[Fact] = []
        absent: list[MessageId] = []
        for start in range(0, len(ids), LOG_PAGE):
            page = set(ids[start : start + LOG_PAGE])
            while page:
                rows = await self._read_log(page, followup_key if followups else message_key)
                known = {row_id for row_id, _ in rows}
                facts += (fact for row_id, found in rows if row_id in page for fact in found)
                # Ids with several rows may have pushed others out of the answer: ask for those alone.
                if len(rows) < LOG_PAGE or not known & page:
                    absent += page - known
                    break
                page -= known
        return LookUp(tuple(facts), tuple(absent))

    async def _read_log(
        self, ids: set[MessageId], key_of: Callable[[UUID, int], str]
    ) -> list[tuple[MessageId, tuple[Fact, ...]]]:
        """The rows of one page, each with its facts. Raises LogUnreachable."""
        params: list[tuple[str, str]] = [("messageId", key_of(*key)) for key in sorted(ids)]
        url = self._log_url.copy_with(params=[*params, ("limit", str(LOG_PAGE))])
        try:
            response = await self._transport.get(url)
        except Exception as error:
            raise LogUnreachable(name_failure(error)) from error
        if response.status_code != 200:
            raise LogUnreachable(f"HTTP {response.status_code}")
        rows = rows_of(decode_json(response.content), "results")
        if rows is None:
            raise LogUnreachable("an answer without a list of results")
        try:
            return list(_read_rows(rows))
        except ValueError as error:
            # Whose row it was cannot be told: nothing on this page is proven absent.
            raise LogUnreachable(str(error)) from error

    async def read_senders(self, senders: Sequence[str]) -> list[SenderState]:
        found: list[SenderState] = []
        for start in range(0, len(senders), SENDERS_PAGE):
            found += await self._read_senders(senders[start : start + SENDERS_PAGE])
        return found

    async def _read_senders(self, senders: Sequence[str]) -> list[SenderState]:
        """One page. A sender that the call is refused for is found by halving, and left out."""
        response = await self._ask(self._quality_url.copy_with(params={"senders": ",".join(senders)}))
        if response.status_code in {400, 404}:
            if len(senders) == 1:
                return []
            middle = len(senders) // 2
            return await self._read_senders(senders[:middle]) + await self._read_senders(senders[middle:])
        rows = states.read_senders(response.content) if response.status_code == 200 else None
        if rows is None:
            raise StatesUnreadable(f"HTTP {response.status_code}")
        return rows

    async def read_templates(self, account: str) -> list[TemplateState]:
        response = await self._ask(address(self._base_url, f"/whatsapp/2/senders/{account}/templates"))
        rows = states.read_templates(response.content) if response.status_code == 200 else None
        if rows is None:
            raise StatesUnreadable(f"HTTP {response.status_code}")
        return rows

    async def _ask(self, url: httpx.URL) -> Answer:
        """GET. Raises StatesUnreadable when there is no answer."""
        try:
            return await self._transport.get(url)
        except Exception as error:
            raise StatesUnreadable(name_failure(error)) from error

    def parse_webhook(self, body: bytes) -> Parsed:
        return codec.parse_webhook(body)

    async def close(self) -> None:
        await self._transport.close()


def _read_rows(rows: Sequence[object]) -> Iterator[tuple[MessageId, tuple[Fact, ...]]]:
    for row in rows:
        if not isinstance(row, dict):
            raise ValueError("a row that is none")
        key = str(row.get("messageId"))
        if (row_id := parse_message_key(key) or parse_followup_key(key)) is None:
            raise ValueError("a row without an id of ours")
        yield row_id, tuple(codec.parse_log_row(row))
