"""What may follow an answer, and how a row whose sender is given gets its slot."""

import pytest

from carteiro.domain.follow_ups import FollowUp, Media, MediaType, follow_up_faults, free_form_of
from carteiro.domain.pacing import SECOND_US, Calendar, open_calendar
from carteiro.domain.planning import Lane, next_chance_us, plan_each

URL = "https://example.com/a"


@pytest.mark.parametrize(
    ("asked", "pointers"),
    [
        (FollowUp(text="x" * 4_096), []),
        (FollowUp(media=Media(MediaType.IMAGE, URL, "c" * 1_024)), []),
        (FollowUp(media=Media(MediaType.DOCUMENT, URL, filename="f" * 240)), []),
        (FollowUp(), ["/follow_up"]),
        (FollowUp(text="x", media=Media(MediaType.VIDEO, URL)), ["/follow_up"]),
        (FollowUp(text="x" * 4_097), ["/follow_up/text"]),
        (FollowUp(text=" \n"), ["/follow_up/text"]),
        (FollowUp(text=""), ["/follow_up/text"]),
        (FollowUp(media=Media(MediaType.VIDEO, "http://example.com/a")), ["/follow_up/media/url"]),
        (FollowUp(media=Media(MediaType.VIDEO, URL, "c" * 1_025)), ["/follow_up/media/caption"]),
        (FollowUp(media=Media(MediaType.VIDEO, URL, filename="a.mp4")), ["/follow_up/media/filename"]),
        (FollowUp(media=Media(MediaType.DOCUMENT, URL, filename="")), ["/follow_up/media/filename"]),
    ],
)
def test_what_is_wrong_with_it(asked: FollowUp, pointers: list[str]) -> None:
    assert [fault.pointer for fault in follow_up_faults(asked)] == pointers


def test_the_batch_keeps_what_was_given_and_nothing_else() -> None:
    assert FollowUp(text="oi").content == {"text": "oi"}
    kept = FollowUp(media=Media(MediaType.IMAGE, URL, caption="veja")).content
    assert kept == {"media": {"type": "image", "url": URL, "caption": "veja"}}
    assert free_form_of({"text": "oi"}) == ("oi", None)
    assert free_form_of(kept) == (None, {"type": "IMAGE", "mediaUrl": URL, "caption": "veja"})


def calendar(limit: int) -> Calendar:
    return open_calendar(limit, SECOND_US, 0, now_us=0)


def lane(name: str, limit: int) -> Lane:
    return Lane(name, "bm", "HIGH", 0, None, (calendar(limit),))


def test_each_row_gets_an_instant_of_its_own_sender_and_none_waits_for_another() -> None:
    service, slow, quick = calendar(50), lane("slow", 2), lane("quick", 50)
    rows = [slow, slow, slow, quick, quick]
    planned = plan_each(rows, service=service, start_us=0, horizon_us=600_000, gap_us=1_000)
    assert planned[0] is not None
    assert planned[1] is not None
    assert planned[1] - planned[0] >= 450_000
    assert planned[2] is None
    assert planned[3] is not None
    assert planned[3] < 100_000
    granted = sorted(at_us for at_us in planned if at_us is not None)
    assert len(set(granted)) == 4
    assert next_chance_us(service, slow, 0, 600_000) >= 900_000


def test_the_services_pace_holds_over_all_senders() -> None:
    service = calendar(4)
    planned = plan_each(
        [lane(str(n), 50) for n in range(8)], service=service, start_us=0, horizon_us=SECOND_US - 1, gap_us=1
    )
    assert sum(at_us is not None for at_us in planned) == 4
