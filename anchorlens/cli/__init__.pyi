from .commands import app as app
from .shared import fail as fail
from .shared import in_group as in_group
from .shared import one_line_errors as one_line_errors
from .shared import say as say
from .start import main as main
