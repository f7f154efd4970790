"""The named steps at which a process can be told to kill itself (tests/chaos/process.py does it)."""

from dataclasses import dataclass, replace

from tests.chaos.world import USUAL, World

SERVE, WORKER = "serve", "worker"

ORDER_VARIABLE = "CHAOS_FAIL"
"""`point hits directory`: die at the so manieth hit, while `armed` is in the directory; tell of it in `fired`."""
ARMED, FIRED = "armed", "fired"

WRITTEN, READ = "call.written", "call.read"
STORED = "store"


@dataclass(frozen=True, slots=True)
class Commit:
    """The transactions of a use case: those that `module` opens with `transact`, and in which `marks` of `of` did
    something.
    """

    name: str
    module: str
    of: str
    marks: str
    even_idle: bool = False
    """Also when `marks` answers that there was nothing."""

    @property
    def points(self) -> tuple[str, str]:
        return f"{self.name}.before", f"{self.name}.after"


@dataclass(frozen=True, slots=True)
class Step:
    """`hits`: at which hit the process dies at the latest. `along`: a fault that makes it happen often enough."""

    process: str
    hits: int
    commits: tuple[Commit, ...] = ()
    others: tuple[str, ...] = ()
    along: str | None = None
    world: World = USUAL

    @property
    def points(self) -> list[str]:
        return [*(point for commit in self.commits for point in commit.points), *self.others]


_SERVICES, _STORAGE = "carteiro.services", "carteiro.storage"
_DISPATCH = f"{_SERVICES}.dispatch"

STEPS: dict[str, Step] = {
    "create": Step(SERVE, 5, (Commit("create", f"{_SERVICES}.create.place", f"{_STORAGE}.batches", "open_draft"),)),
    "control": Step(
        SERVE,
        2,
        (
            Commit("control", f"{_SERVICES}.control", f"{_STORAGE}.control", "move_batch"),
            Commit("withdraw", f"{_SERVICES}.withdraw", f"{_STORAGE}.sweep", "withdraw_rows"),
        ),
        world=replace(USUAL, orders_every_s=(0.05, 0.2), cancels=0.4),
    ),
    "store": Step(SERVE, 12, others=(f"{STORED}.before", f"{STORED}.after")),
    "claim": Step(WORKER, 12, (Commit("claim", f"{_DISPATCH}.claim", f"{_STORAGE}.claims", "open_claim"),)),
    "call": Step(WORKER, 40, others=(WRITTEN, READ)),
    "record": Step(WORKER, 12, (Commit("record", f"{_DISPATCH}.record", f"{_STORAGE}.outcomes", "begin_flush"),)),
    "lapse": Step(
        WORKER, 1, (Commit("lapse", f"{_DISPATCH}.lapse", f"{_STORAGE}.outcomes", "close_claim"),), along="kill"
    ),
    "reconcile": Step(
        WORKER,
        2,
        (
            Commit("look-up", f"{_DISPATCH}.reconcile", f"{_STORAGE}.unknowns", "take"),
            Commit("reconcile", f"{_DISPATCH}.reconcile", f"{_STORAGE}.unknowns", "hold"),
        ),
        along="resets",
    ),
    "apply": Step(WORKER, 6, (Commit("apply", f"{_SERVICES}.receive", f"{_STORAGE}.receipts", "clear_inbox"),)),
    "finalise": Step(WORKER, 2, (Commit("finalise", f"{_SERVICES}.finalise", f"{_STORAGE}.settlement", "settle"),)),
    "callback": Step(
        WORKER,
        1,
        (
            Commit("callback-claim", f"{_SERVICES}.callback", f"{_STORAGE}.callbacks", "claim_due"),
            Commit("callback", f"{_SERVICES}.callback", f"{_STORAGE}.callbacks", "record_delivered"),
        ),
    ),
    "wake": Step(
        WORKER,
        2,
        (Commit("wake", f"{_DISPATCH}.waking", f"{_STORAGE}.settlement", "wake_waiting", even_idle=True),),
        along="throttle",
    ),
}
