"""How far one tensor is from another: figures of a pair, nothing about models, files or thresholds."""

from bisect_align.metrics.measure import measure

__all__ = ["measure"]
