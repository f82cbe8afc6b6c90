"""What a run needs in memory, time and disk, by arithmetic alone; and the plan that fits a machine.

::

    rows                   the data under a length limit: steps, tokens, the fullest step
    layer ─► model         one fast layer in bytes (the run counts with it too); a model with what learns of it
    encoder ─► work        the same of an encoder that is trained whole; a micro-batch
    cards                  what is published of a card
    terms ─► peak          memory: each part, and the highest moment
    learned                corrections of memory and time from finished runs
    duration               counted work over published rates
    reach                  what places rows longer than the model was made for
    fit                    the plan: every automatic value made definite
    estimate               a plan against what is free, with time, energy and disk
    by_fit                 models by what fits, and the one for a goal and a card
    suggest                what else could be chosen, for the machine's sake; on which of several cards
    propose ─► advise      settings from the rows and the machine with their reasons; what differs from what is usual

Each imports only what stands above it.
"""

from core.estimate.advise import advise
from core.estimate.estimate import estimate, predict, probed
from core.estimate.fit import resolve
from core.estimate.inputs.rows import total_steps, train_rows
from core.estimate.learned import Learned
from core.estimate.propose import Given, propose
from core.estimate.suggest import best_cards, card_choices, make_it_fit, use_the_room

__all__ = [
    "Given",
    "Learned",
    "advise",
    "best_cards",
    "card_choices",
    "estimate",
    "make_it_fit",
    "predict",
    "probed",
    "propose",
    "resolve",
    "total_steps",
    "train_rows",
    "use_the_room",
]
