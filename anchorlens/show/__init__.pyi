from .frame import picture_page as picture_page
from .notebook.probe import by_probes_html as by_probes_html
from .notebook.probe import comparison_html as comparison_html
from .notebook.probe import probe_html as probe_html
from .notebook.probe import verdict_html as verdict_html
from .notebook.training import checkpoint_html as checkpoint_html
from .notebook.training import train_result_html as train_result_html
from .report.page import write_report as write_report
from .templating import view as view

# isort: split
# What products use; outsiders have no promise about it.
from .frame import html_page as html_page
from .frame import write_page as write_page
from .report.page import check_verdicts as check_verdicts
from .report.page import inputs as inputs
from .report.page import outline as outline
from .report.panels import refusal as refusal
from .tables import MOST_ANCHORS as MOST_ANCHORS
from .tables import Table as Table
from .tables import TableCell as TableCell
from .tables import dotted as dotted
from .tables import pair_rows as pair_rows
from .templating import VERDICT_SHEETS as VERDICT_SHEETS
from .templating import rendered as rendered
from .terminal.console import FittedTable as FittedTable
from .terminal.console import Terminal as Terminal
from .terminal.console import print_json as print_json
from .words import AGREEMENT as AGREEMENT
from .words import CAPTIONS as CAPTIONS
from .words import Caption as Caption
from .words import captions_in as captions_in
from .words import megabytes as megabytes
from .words import number as number
from .words import plain as plain
from .words import short as short
