"""Creating a batch: everything is checked first, then taken in one short transaction, or nothing is."""

from carteiro.services.create.drafts import collect_abandoned_drafts as collect_abandoned_drafts
from carteiro.services.create.place import Creation as Creation
from carteiro.services.create.retry import retry_failed as retry_failed
from carteiro.services.create.streamed import Lines as Lines
from carteiro.services.create.streamed import Upload as Upload
from carteiro.services.create.streamed import create_streamed as create_streamed
from carteiro.services.create.whole import create_batch as create_batch
from carteiro.storage.idempotency import Key as Key
