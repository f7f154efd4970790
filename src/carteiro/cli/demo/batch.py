"""The demo's batch: a CSV of contacts, watched until it is settled."""

import time

from carteiro.cli.demo.contacts import make_contacts, read_csv, write_csv
from carteiro.cli.demo.evidence import Evidence, judge
from carteiro.cli.demo.stage import Stage
from carteiro.cli.demo.verdicts import Verdict

SENDERS = 10
CALLBACK_PATIENCE_S = 30.0


def send_batch(stage: Stage) -> list[Verdict]:
    screen, client, provider = stage.screen, stage.client, stage.provider
    write_csv(stage.folder / "contacts.csv", make_contacts(stage.count))
    contacts = read_csv(stage.folder / "contacts.csv")
    credits_before = client.read_balance()
    post = {"callback_url": stage.stack.callback_url, "idempotency_key": "demo-1"}
    began_s = time.monotonic()
    batch, _ = client.post_batch(contacts, **post)
    took_ms = (time.monotonic() - began_s) * 1000
    screen.step(f"a CSV of {stage.count:,} contacts was posted, and accepted in {took_ms:.0f} ms: batch {batch['id']}")

    stage.watch(batch["id"])
    stage.stack.wait_until(provider.read_callbacks, CALLBACK_PATIENCE_S, "the callback arrives")
    credits_after = client.read_balance()
    replay, replay_marked = client.post_batch(contacts, **post)
    evidence = Evidence(
        contacts=contacts,
        senders=SENDERS,
        credits_before=credits_before,
        credits_after=credits_after,
        batch=client.read_batch(batch["id"]),
        calls=stage.calls_of(batch["id"]),
        callbacks=provider.read_callbacks(),
        callback_secret=stage.callback_secret,
        replay=replay,
        replay_marked=replay_marked,
        credits_after_replay=client.read_balance(),
    )
    screen.show_result(evidence)
    return judge(evidence)
