"""The report: one page that opens offline and shows what runs came to."""

from phalanx.simulate.report.page import write_report
from phalanx.simulate.report.repeat import Repeat, RunOf

__all__ = ["Repeat", "RunOf", "write_report"]
