from .corruption import corrupted as corrupted
from .files import open_dataset as open_dataset
from .files import read_csv as read_csv
from .lateness import Score as Score
from .mappings import Mappings as Mappings
from .mappings import mappings_of as mappings_of
from .result import Audit as Audit
from .run import audit as audit
