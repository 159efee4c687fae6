from .commands import app as app
from .errors import fail as fail
from .errors import one_line_errors as one_line_errors
from .errors import say as say
from .groups import in_group as in_group
from .start import main as main
