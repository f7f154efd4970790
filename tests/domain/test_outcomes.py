from uuid import UUID

from carteiro.domain.outcomes import followup_key, message_key, parse_followup_key, parse_message_key

BATCH = UUID("0190b5a0-0000-7000-8000-000000000042")


def test_a_messages_key_and_its_follow_ups_are_never_taken_for_each_other() -> None:
    key, followup = message_key(BATCH, 7), followup_key(BATCH, 7)
    assert (parse_message_key(key), parse_followup_key(followup)) == ((BATCH, 7), (BATCH, 7))
    assert (parse_followup_key(key), parse_message_key(followup)) == (None, None)


def test_ids_of_others_are_none_of_ours() -> None:
    for key in ("", "f", "-1f", f"{BATCH.hex}-f", f"{BATCH.hex}-1ff", f"{BATCH.hex}f", "cmp-0042-000001"):
        assert parse_followup_key(key) is None
