"""How intervals are made in tests of reports."""

from stages.reports.problem_interval import QualityConfig

QUALITY = QualityConfig(
    num_bins=2,
    binning="equal_mass",
    length_tolerance=1,
    length_edges=[0],
    num_bootstrap=200,
    confidence=0.95,
)
