"""The catalog file read and checked: every fault is told at once, with its table, its place and its field.

| table | key | what it is |
|---|---|---|
| `[[account]]` | id | owner of batches, keys and credits; `bills_to` another one |
| `[[service]]` | id | what an account sends under |
| `[[business_manager]]` | id | owns the daily limit |
| `[[sender]]` | id | a phone number of a business manager, for `accounts` |
| `[[template]]` | name, language | base content |
| `[[submission]]` | template, language, business_manager | its physical copy; own structure members where it differs |
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from carteiro.domain.errors import InvalidRequest
from carteiro.domain.template_entries import parse_template
from carteiro.domain.templates import Template, signature
from carteiro.storage.catalog import Row

TABLES = ("account", "service", "business_manager", "sender", "template", "submission")
KEYS = {
    "account": ("id",),
    "service": ("id",),
    "business_manager": ("id",),
    "sender": ("id",),
    "template": ("name", "language"),
    "submission": ("template", "language", "business_manager_id"),
}
"""What names a row of each table, in the database's words."""
STRUCTURE = ("category", "body", "header", "footer", "buttons")
"""Members of a template that a submission may give otherwise."""

Id = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z][0-9A-Za-z._-]{0,99}\Z")]
Positive = Annotated[int, msgspec.Meta(gt=0, le=1_000_000)]
Limit = Annotated[int, msgspec.Meta(ge=0, le=2_000_000_000)]


class CatalogError(ValueError):
    """`faults` are lines for the operator."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member that we do not know is a mistake, and refused."""


class AccountEntry(Strict, frozen=True):
    id: Id
    bills_to: Id | None = None

    def row(self) -> Row:
        return {"id": self.id, "bills_to": self.bills_to}


class ServiceEntry(Strict, frozen=True):
    id: Id
    account: Id
    provider: Literal["infobip", "meta"]
    base_url: Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://[^\s/]+[^\s]*\Z")]
    api_key_env: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z_][0-9A-Za-z_]*\Z")]
    messages_per_second: Positive
    kind: Literal["multibm", "broadcast", "group_link"] = "multibm"
    flow: Literal["personal", "business"] | None = None
    category: Literal["UTILITY", "MARKETING", "AUTHENTICATION"] = "UTILITY"
    charge_rule: Literal["sent_only", "full", "free"] | None = None
    """Unless it is said: sent_only for batches, free for the other doors."""
    min_batch_size: Positive = 1
    rotation: Literal["round_robin", "quality_first"] = "round_robin"
    test_mode: bool = False
    max_inflight: Positive | None = None
    messages_per_request: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    active: bool = True

    def row(self) -> Row:
        charge_rule = self.charge_rule or ("sent_only" if self.kind == "multibm" else "free")
        return _renamed(self, account="account_id") | {"charge_rule": charge_rule}


class ManagerEntry(Strict, frozen=True):
    id: Id
    daily_limit: Limit | None = None
    messages_per_minute: Positive | None = None
    active: bool = True

    def row(self) -> Row:
        return _renamed(self, daily_limit="daily_limit_override")


class SenderEntry(Strict, frozen=True):
    """Without `quality` or `status` the row has none either: what was learnt from the provider stays."""

    id: Annotated[str, msgspec.Meta(pattern=r"\A[1-9][0-9]{7,14}\Z", description="E.164 digits without the plus")]
    business_manager: Id
    accounts: list[Id]
    quality: Literal["HIGH", "MEDIUM", "LOW", "UNKNOWN"] | None = None
    status: Annotated[str, msgspec.Meta(pattern=r"\A[A-Z][A-Z_]*\Z")] | None = None
    daily_limit: Limit | None = None
    use_waba_limit: bool = False
    messages_per_second: Positive | None = None
    phone_number_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,32}\Z")] | None = None
    """What Meta calls it: only senders with one are used by services of Meta's, and by no others."""
    waba_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,32}\Z")] | None = None
    active: bool = True

    def row(self) -> Row:
        row = _renamed(self, business_manager="business_manager_id", phone_number_id="provider_ref")
        learnt = {name for name in ("quality", "status") if row[name] is None}
        return {name: row[name] for name in row if name not in learnt} | {"accounts": sorted(set(self.accounts))}


class SubmissionEntry(Strict, frozen=True):
    """Without `status` the row has none either: a new one is PENDING, an old one stays as the provider says it is."""

    template: str
    business_manager: Id
    physical_name: Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9_]{1,512}\Z")]
    status: Annotated[str, msgspec.Meta(pattern=r"\A[A-Z][A-Z_]*\Z")] | None = None
    language: str = "pt_BR"
    category: Any = None
    body: Any = None
    header: Any = None
    footer: Any = None
    buttons: Any = None


def read_catalog(text: str) -> dict[str, list[Row]]:
    """Rows by table, as `storage.catalog` writes them. Raises CatalogError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError([f"not TOML: {error}"]) from None
    reader = _Reader(document)
    rows = reader.read()
    if reader.faults:
        raise CatalogError(reader.faults)
    return rows


class _Reader:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.faults: list[str] = []
        self.templates: dict[tuple[str, str], tuple[Mapping[str, Any], Template]] = {}

    def read(self) -> dict[str, list[Row]]:
        for name in sorted(self.document.keys() - set(TABLES)):
            self.faults.append(f"[[{name}]]: there is no such table; there are {', '.join(TABLES)}")
        rows: dict[str, list[Row]] = {
            "account": self._rows("account", _converter(AccountEntry)),
            "service": self._rows("service", _converter(ServiceEntry)),
            "business_manager": self._rows("business_manager", _converter(ManagerEntry)),
            "sender": self._rows("sender", _converter(SenderEntry)),
            "template": self._rows("template", self._template),
            "submission": self._rows("submission", self._submission),
        }
        for table in TABLES:
            self._check_keys(table, rows[table])
        self._check_references(rows)
        return rows

    def _rows(self, table: str, read: Callable[[Mapping[str, Any]], Row]) -> list[Row]:
        """What is wrong with one entry does not hide what is wrong with the next."""
        entries = self.document.get(table, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.faults.append(f"{table}: write each entry as a [[{table}]] of its own")
            return []
        rows = []
        for index, entry in enumerate(entries, start=1):
            try:
                rows.append(read(entry))
            except msgspec.ValidationError as error:
                what, _, place = str(error).partition(" - at `$")
                field = place.strip("`").lstrip(".")
                self._refuse(table, index, entry, f"{field}: {what}" if field else what)
            except InvalidRequest as error:
                for fault in error.errors:
                    field = fault.pointer.lstrip("/").replace("/", ".")
                    self._refuse(table, index, entry, f"{field}: {fault.detail}" if field else fault.detail)
        return rows

    def _template(self, entry: Mapping[str, Any]) -> Row:
        template = parse_template(entry)
        self.templates[template.name, template.language] = entry, template
        return {
            "name": template.name,
            "language": template.language,
            "category": str(template.category),
            "content": template.to_content(),
            "signature": signature(template),
        }

    def _submission(self, entry: Mapping[str, Any]) -> Row:
        given = msgspec.convert(entry, SubmissionEntry)
        base = self.templates.get((given.template, given.language))
        own = {name: entry[name] for name in STRUCTURE if name in entry}
        copy = parse_template({**base[0], **own}) if base and own else base[1] if base else None
        return {
            "template": given.template,
            "language": given.language,
            "business_manager_id": given.business_manager,
            "physical_name": given.physical_name,
            "signature": signature(copy) if copy else b"",
            "parameter_names": list(copy.names) if copy else [],
            **({"status": given.status} if given.status is not None else {}),
        }

    def _check_keys(self, table: str, rows: list[Row]) -> None:
        counts = Counter(tuple(row[name] for name in KEYS[table]) for row in rows)
        for key, count in counts.items():
            if count > 1:
                self.faults.append(f"[[{table}]] {' '.join(key)}: given {count} times")

    def _check_references(self, rows: Mapping[str, list[Row]]) -> None:
        accounts = {row["id"]: row["bills_to"] for row in rows["account"]}
        managers = {row["id"] for row in rows["business_manager"]}
        templates = {(row["name"], row["language"]) for row in rows["template"]}
        serving = Counter(row["account_id"] for row in rows["service"] if row["kind"] == "broadcast" and row["active"])
        for account, count in serving.items():
            if count > 1:
                self.faults.append(
                    f"[[service]]: account {account} has {count} active ones of kind broadcast; one at most"
                )
        for table, name, value, known in _references(rows, accounts.keys(), managers):
            if value not in known:
                self.faults.append(f"[[{table}]] {name}: {value} is not in the file")
        for account, payer in accounts.items():
            if payer == account or accounts.get(payer):
                self.faults.append(f"[[account]] {account}: bills_to: {payer} must be another account that pays itself")
        for row in rows["submission"]:
            if (row["template"], row["language"]) not in templates:
                named = f"{row['template']} {row['language']}"
                self.faults.append(f"[[submission]] {named} {row['business_manager_id']}: no such [[template]]")

    def _refuse(self, table: str, index: int, entry: Mapping[str, Any], told: str) -> None:
        name = entry.get("id") or entry.get("name") or entry.get("template") or ""
        self.faults.append(f"[[{table}]] #{index}{f' {name}' if name else ''}: {told}")


def _references(rows: Mapping[str, list[Row]], accounts: Any, managers: Any) -> Iterator[tuple[str, str, str, Any]]:
    """(table, entry and field, what it names, what there is)."""
    for row in rows["account"]:
        if row["bills_to"] is not None:
            yield "account", f"{row['id']}: bills_to", row["bills_to"], accounts
    for row in rows["service"]:
        yield "service", f"{row['id']}: account", row["account_id"], accounts
    for row in rows["sender"]:
        yield "sender", f"{row['id']}: business_manager", row["business_manager_id"], managers
        for account in row["accounts"]:
            yield "sender", f"{row['id']}: accounts", account, accounts
    for row in rows["submission"]:
        name = f"{row['template']} {row['language']}: business_manager"
        yield "submission", name, row["business_manager_id"], managers


def _converter(
    kind: type[AccountEntry] | type[ServiceEntry] | type[ManagerEntry] | type[SenderEntry],
) -> Callable[[Mapping[str, Any]], Row]:
    return lambda entry: msgspec.convert(entry, kind).row()


def _renamed(entry: msgspec.Struct, **columns: str) -> Row:
    return {columns.get(name, name): value for name, value in msgspec.structs.asdict(entry).items()}
