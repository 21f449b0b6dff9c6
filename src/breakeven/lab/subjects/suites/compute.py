"""Suite `compute`: matrix products, convolutions and attention, where there is little to gain.

At large the operands and results exceed 64 MiB, or the weights do; a call stays below half a second
of eager time on two cores.
"""

from __future__ import annotations

from breakeven.lab.subjects.suites.attention import ATTENTION
from breakeven.lab.subjects.suites.convolutions import CONVOLUTIONS
from breakeven.lab.subjects.suites.products import PRODUCTS
from breakeven.lab.subjects.suites.scales import Factory

SUBJECTS: dict[str, Factory] = {**PRODUCTS, **CONVOLUTIONS, **ATTENTION}
