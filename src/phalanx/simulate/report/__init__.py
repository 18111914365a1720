"""The report: one page that opens offline and shows what runs came to."""

from phalanx.simulate.report.page import write_report

__all__ = ["write_report"]
