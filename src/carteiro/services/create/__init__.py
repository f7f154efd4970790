"""Creating a batch: everything is checked first, then taken in one short transaction, or nothing is."""

from carteiro.services.create.drafts import collect_abandoned_drafts as collect_abandoned_drafts
from carteiro.services.create.place import Creation as Creation
from carteiro.services.create.place import create_batch as create_batch
from carteiro.services.create.retry import retry_failed as retry_failed
from carteiro.storage.idempotency import Key as Key
