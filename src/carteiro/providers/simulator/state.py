"""What the doors of one simulator share."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from carteiro.providers.simulator.faults import FaultBook
from carteiro.providers.simulator.ledger import Ledger
from carteiro.providers.simulator.options import Options
from carteiro.providers.simulator.receipts import Receipts
from carteiro.providers.simulator.standing import Standings
from carteiro.providers.simulator.witness import Witness


@dataclass(slots=True)
class State:
    options: Options
    ledger: Ledger
    faults: FaultBook
    receipts: Receipts
    random: Random
    standings: Standings
    witness: Witness | None = None
    requests: Counter[str] = field(default_factory=Counter)
    """Per door, refused ones included."""

    @classmethod
    def of(cls, options: Options, witness: Witness | None = None) -> "State":
        ledger, standings = Ledger(), Standings()
        receipts = Receipts(options, ledger, standings)
        return cls(options, ledger, FaultBook(options.seed), receipts, Random(options.seed), standings, witness)

    def reset(self) -> None:
        """As at the start, but for changed options."""
        self.receipts.reset()
        self.ledger.reset()
        self.faults.reset(self.options.seed)
        self.standings.reset()
        self.random.seed(self.options.seed)
        self.requests.clear()
