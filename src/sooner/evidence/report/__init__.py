"""The report: one page, its figures and its tables, from run files alone."""

from sooner.evidence.report.page import write_report

__all__ = ["write_report"]
