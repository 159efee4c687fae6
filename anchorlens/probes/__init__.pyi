from .along_run import Along as Along
from .along_run import along as along
from .any_model.activation_patching import activation_patching as activation_patching
from .any_model.attention_patterns import attention_patterns as attention_patterns
from .any_model.embedding_pca import embedding_pca as embedding_pca
from .any_model.holdout import holdout as holdout
from .any_model.q_condensation import q_condensation as q_condensation
from .any_model.stable_rank import stable_rank as stable_rank
from .any_model.training_regime import training_regime as training_regime
from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .from_file import own_probes as own_probes
from .from_file import with_own as with_own
from .registry import COSTLY as COSTLY
from .registry import OF_MIXTURES as OF_MIXTURES
from .registry import PROBES as PROBES
from .registry import REPORT_PROBES as REPORT_PROBES
from .registry import SHIPPED as SHIPPED
from .registry import apply as apply
from .registry import probe_named as probe_named
from .shared.contract import ProbeResult as ProbeResult
from .shared.contract import needs_initial as needs_initial
from .shared.contract import needs_task as needs_task
from .two_anchor.first_layer_tsne import first_layer_tsne as first_layer_tsne
from .two_anchor.fusion_similarity import fusion_similarity as fusion_similarity
from .two_anchor.gradient_sharing import gradient_sharing as gradient_sharing
from .two_anchor.information_flow import information_flow as information_flow
from .two_anchor.interchange import interchange as interchange
from .two_anchor.mask_key_token import mask_key_token as mask_key_token
from .two_anchor.mask_second_anchor import mask_second_anchor as mask_second_anchor
from .two_anchor.nearest_neighbours import nearest_neighbours as nearest_neighbours
from .two_anchor.survival import survival as survival
from .two_anchor.v_similarity import v_similarity as v_similarity

# isort: split
# What products use; outsiders have no promise about it.
from .any_model.embedding_pca import ARROWS as ARROWS
from .any_model.embedding_pca import MOST_WRITTEN as MOST_WRITTEN
from .any_model.embedding_pca import EmbeddingPCA as EmbeddingPCA
from .any_model.q_condensation import QCondensation as QCondensation
from .from_file import what_went_wrong as what_went_wrong
from .two_anchor.information_flow import InformationFlow as InformationFlow
from .two_anchor.information_flow import drawn_edges as drawn_edges
from .two_anchor.mask_key_token import MaskKeyToken as MaskKeyToken
from .two_anchor.v_similarity import VSimilarity as VSimilarity

def __getattr__(name: str): ...
