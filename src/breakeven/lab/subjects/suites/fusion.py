"""Suite `fusion`: graphs that move much memory for little arithmetic, so that fusing them pays.

The sizes follow from traffic: at small all tensors fit in the first caches, at medium they take a
few MiB, at large inputs, outputs and one intermediate take about 256 MiB and more.
"""

from __future__ import annotations

from breakeven.lab.subjects.suites.adam import ADAM
from breakeven.lab.subjects.suites.losses import LOSSES
from breakeven.lab.subjects.suites.normalization import NORMALIZATION
from breakeven.lab.subjects.suites.pointwise import POINTWISE
from breakeven.lab.subjects.suites.scales import Factory

SUBJECTS: dict[str, Factory] = {**POINTWISE, **NORMALIZATION, **LOSSES, **ADAM}
