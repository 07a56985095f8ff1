"""Which tensor to look at next: bisection over observed tensors, knowing neither values nor files."""

from bisect_align.search.answer import Answer, Clean, Crossing, Missing, crossings
from bisect_align.search.bisection import Bisection

__all__ = ["Answer", "Bisection", "Clean", "Crossing", "Missing", "crossings"]
