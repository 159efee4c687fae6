from .diagram.page import write_diagram as write_diagram
from .notebook.audit import audit_html as audit_html
from .notebook.sweep import cell_html as cell_html
from .notebook.sweep import sweep_html as sweep_html
from .notebook.verdict import mechanism_html as mechanism_html
from .notebook.verdict import verdict_html as verdict_html
from .report.page import write_report as write_report
