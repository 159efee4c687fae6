from .style import BLUE as BLUE
from .style import CATEGORIES as CATEGORIES
from .style import COSINE as COSINE
from .style import EFFECT as EFFECT
from .style import GREY as GREY
from .style import NO_EFFECT as NO_EFFECT
from .style import ORANGE as ORANGE
from .style import SHARE as SHARE
from .style import box_cells as box_cells
from .style import complete as complete
from .style import cosine_heatmap as cosine_heatmap
from .style import in_words as in_words
from .style import save as save
from .style import styled as styled

# isort: split
# What products use; outsiders have no promise about it.
from .curves import thinned as thinned
from .curves import training_curve as training_curve
from .curves import training_traces as training_traces
from .from_specs import figure_of as figure_of
from .of_probes import pair_styles as pair_styles
from .picture import Picture as Picture
from .picture import plotly_text as plotly_text
from .picture import script_json as script_json
from .side_by_side import distinct as distinct
