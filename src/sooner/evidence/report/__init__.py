"""The report: one page, its figures and its tables, from run files alone."""

from sooner.evidence.report.page import ReportOptions, write_report

__all__ = ["ReportOptions", "write_report"]
