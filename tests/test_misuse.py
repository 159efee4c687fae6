"""What a user gets wrong, and the words of the one sentence that says so."""

import numpy as np
import pytest
import torch

import anchorlens
from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model, classify, probes
from anchorlens.extras.sweep import grid, sweep

TASK, SMALL = AnchorTask(), ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, gamma=0.5)
MODEL = build_model(SMALL)
CHECKPOINT = Checkpoint.from_model(MODEL, SMALL, TASK)
RECIPE = TrainConfig(steps=2)

MISUSES = {
    # configurations
    "train({'kind': 'two_anchor'})": "task must be .* got dict .* AnchorTask(**fields)",
    "train('two_anchor')": "task must be a TaskConfig, for example AnchorTask(), got str",
    "train('quick')": "task must be .* got str .* train(*preset",
    "train(TASK, {'gamma': .5})": "model_config must be .* dict .* ModelConfig(**",
    "train(TASK, 'quick')": "model_config must be .* str .* train(*preset(",
    "train(TASK, SMALL, RECIPE, out='')": "out must be a path, got an empty text",
    "classify('')": "path must be a path, got an empty text",
    "AnchorTask(unseen_pairs=(3, 4))": "unseen_pairs must be a list of pairs, got (3, 4). .* [(3, 4)]",
    "probes.mask_key_token(CHECKPOINT, n_seq=3)": "got 'n_seq'. .* The options are queries,",
    "train(TASK, SMALL, {'steps': 3})": "train_config must be .* TrainConfig(**fields)",
    "train(SMALL, TASK)": "task must be .* got ModelConfig .* before",
    "train(TASK, RECIPE, SMALL)": "model_config must be .* got TrainConfig",
    "train(MODEL, TASK)": "task must be a TaskConfig, .* got HookedTransformer",
    "train(preset('quick'))": "task must be .* RunConfig .* train(*preset(",
    "train(*preset('quick'), steps=2)": "'steps' .* belongs to TrainConfig",
    "train(TASK, gamma=.5)": "'gamma' .* belongs to ModelConfig and UNetConfig",
    "train(TASK, resum=True)": "train must .* Did you mean 'resume'?",
    "train(TASK, SMALL, RECIPE, out=3)": "out must be a path, got an int",
    "train_many(preset('quick'))": "runs must be a list of RunConfigs .* got AnchorTask",
    "train_many(3)": "runs must be a list of RunConfigs .* got 3",
    "train_many([TASK])": "runs must be a list of RunConfigs, such as [preset()]",
    "train_many([RunConfig(TASK, {}, RECIPE)])": "model_config must be a ModelConfig, .* got dict",
    "sweep([preset('quick')], 3)": "out must be a path, got an int",
    "sweep([preset('quick')], 's', gamma=.5)": "sweep must get .* 'gamma' .* ModelConfig",
    "control('runs/a', ot='c')": "control must get .* Did you mean 'out'?",
    "benchmark('stable_rank', devise='cpu')": "benchmark must get .* mean 'device'?",
    "ModelConfig(gama=.5)": "ModelConfig must get .* mean 'gamma'?",
    "TrainConfig(step=3)": "TrainConfig must get .* mean 'steps'?",
    "AnchorTask(seqlen=9)": "AnchorTask must get .* mean 'seq_len'?",
    "ModelConfig({'gamma': .5})": "variant must be one of .* got {'gamma': 0.5}",
    "ModelConfig('gpt3')": "variant must be .* 'gpt3' .* mean 'gpt2'?",
    "ModelConfig(n_layers=2.5)": "n_layers must be an integer >= 1 .* got 2.5",
    "ModelConfig(n_layers=True)": "n_layers must be an integer >= 1 .* got True",
    "ModelConfig(gamma='large')": "gamma must be a finite number .* got 'large'",
    "ModelConfig(gamma='nan')": "gamma must be a finite number .* got nan",
    "ModelConfig(gamma=torch.ones(2))": "gamma must be a finite number .* got tensor",
    "TrainConfig(steps='1.5')": "steps must be an integer >= 1, got 1.5",
    "TrainConfig(steps=2.0**60)": "steps must be an integer",
    "preset('quik')": "preset must be one of .* Did you mean 'quick'?",
    "preset('quick', gama=.5)": "configuration .* 'gama' .* mean 'gamma'?",
    "preset(SMALL)": "preset must be one of .* got ModelConfig",
    "grid('quick', {'gama': '0.3:0.4:0.1'})": "configuration .* 'gama' .* mean 'gamma'?",
    # models
    "build_model({'gamma': .5})": "config must be .* dict .* ModelConfig(**fields)",
    "build_model('gpt2')": "config must be .* from_pretrained(name)",
    "build_model(MODEL.cfg)": "config must .* TransformerConfig .* gamma_init_",
    "build_model(preset())": "config must be .* got RunConfig .* model_config",
    "build_model(SMALL, sed=1)": "build_model must get .* mean 'seed'?",
    "build_model(SMALL, device='gpu')": "device must be .* got 'gpu'",
    # checkpoints
    "save_checkpoint(CHECKPOINT, 'a.pt')": "path must be .* got a Checkpoint",
    "save_checkpoint('a.pt', MODEL)": "checkpoint must be .* Checkpoint.from_model(",
    "save_checkpoint('a.pt', MODEL.state_dict())": "checkpoint must be .* an OrderedDict",
    "save_checkpoint('a.pt', 'b.pt')": "checkpoint must be a Checkpoint, got a str",
    "save_checkpoint(3, CHECKPOINT)": "path must be a path, got an int",
    "load_checkpoint('.')": "must hold ckpt.pt .* open_checkpoint",
    "load_checkpoint('theirs.pt')": "anchorlens header .* open_checkpoint",
    "load_checkpoint(MODEL.state_dict())": "path must be a path, got an OrderedDict",
    "load_checkpoint(None)": "path must be a path, got a NoneType",
    "open_checkpoint(CHECKPOINT)": "path must be a path, got a Checkpoint",
    "open_checkpoint('theirs.pt', config=3)": "config must be a TOML or JSON file",
    "open_checkpoint('theirs.pt', confg=SMALL)": "open_checkpoint must get .* 'confg' .* mean",
    "open_checkpoint('theirs.pt')": "state dict must come with its whole",
    "Checkpoint.from_model(MODEL, TASK, SMALL)": "task must be .* got ModelConfig",
    "Checkpoint.from_model(MODEL, {}, TASK)": "model_config must be a ModelConfig, .* got dict",
    "Checkpoint.from_model(CHECKPOINT, SMALL, TASK)": "model must be .* got Checkpoint",
    # what measures
    "classify('gpt2')": "gpt2: cannot be .* from_pretrained('gpt2')",
    "open_checkpoint('EleutherAI/pythia-70m')": "from_pretrained('EleutherAI/pythia-70m')",
    "probes.stable_rank('gpt2')": "HookedTransformer.from_pretrained('gpt2')",
    "classify('nothere.pt')": "nothere.pt: cannot be read: No such file",
    "classify(3)": "the model must be .* Checkpoint .* result of train",
    "classify(None)": "model must be a HookedTransformer, .* got NoneType",
    "classify(HookedTransformer)": "model must be a HookedTransformer, .* got type",
    "classify([])": "classify must get at least one model",
    "classify([CHECKPOINT, 3])": "model 2 of 2: the model must be",
    "classify([CHECKPOINT], name='one')": "`name` must be .* 1 names .* 'one'",
    "classify(MODEL.state_dict())": "model must be .* OrderedDict .* Load",
    "classify(TASK)": "model must be .* AnchorTask .* before the task",
    "classify(MODEL, SMALL)": "task must be a TaskConfig, .* got ModelConfig",
    "classify(CHECKPOINT, AdditionTask())": "task must be .* of the checkpoint .* Addition",
    "classify(CHECKPOINT, config=SMALL)": "config must be given only for .* a Che",
    "classify(MODEL, devise='cpu')": "classify must get .* mean 'device'?",
    "classify(CHECKPOINT, device='gpu')": "device must be .* got 'gpu'",
    "classify(MODEL, device='gpu')": "device must be .* got 'gpu'",
    "evaluate(TASK, MODEL)": "task must be .* HookedTransformer .* model before",
    "evaluate(3)": "model must be a HookedTransformer, .* got an int",
    "evaluate(CHECKPOINT, nnoise=3)": "evaluate must get .* mean 'n_noise'?",
    "evaluate(MODEL, AdditionTask(), maxtrain=3)": "task addition must get .* 'maxtrain'",
    "probes.stable_rank([CHECKPOINT])": "model must be .* list .* compare([...], probe)",
    "probes.stable_rank(CHECKPOINT, layer=1)": "stable_rank must get .* option .* 'layer'",
    "probes.q_condensation(MODEL, lyer=0)": "q_condensation must get .* mean 'layer'?",
    "probes.q_condensation(MODEL, TASK, 0)": "q_condensation must be given by name",
    "probes.information_flow(TASK, MODEL)": "task must be .* HookedTransformer .* the model",
    "probes.information_flow(MODEL)": "information_flow must get the two-anchor task",
    "probes.attention_patterns(MODEL)": "attention_patterns must get the two-anchor task",
    "probes.probe_named('stable_rnk')": "probe must be one of .* 'stable_rank'?",
    "probes.compare('stable_rank', [CHECKPOINT])": "probe must be .* got [Checkpoint",
    "probes.compare('stable_rank', [MODEL])": "probe must be .* [<HookedTransformer>]",
    "probes.probe_named('theirs.pt')": "probe must be one of .* 'theirs.pt'",
    "probes.along(MODEL, 'stable_rank')": "run must be the folder of a run, .* got <HookedTr",
    "gamma_init_(0.7, MODEL)": "gamma must be .* got <HookedTransformer>",
    "gamma_init_(MODEL, gama=0.7)": "gamma_init_ must get .* mean 'gamma'?",
    "gamma_table(MODEL, gama=0.7)": "gamma_table must get .* mean 'gamma'?",
    "probes.compare([], 'stable_rank')": "models must contain at least one model, got none",
    "probes.compare([CHECKPOINT], 'stable_rank', labels='one')": "labels must contain 1 labels, got",
    "VERDICT.report('.')": "a report's name must end in .html, got '.'",
    "VERDICT.report('out')": "a report's name must end in .html, got 'out'",
    "VERDICT.report(3)": "a report's name must be a path, got an int",
}


@pytest.fixture(scope="module")
def names():
    verdict = classify(CHECKPOINT, even_underfit=False)
    public = {name: getattr(anchorlens, name) for name in anchorlens.__all__}
    own = {"TASK": TASK, "SMALL": SMALL, "MODEL": MODEL, "CHECKPOINT": CHECKPOINT, "RECIPE": RECIPE}
    return {
        **public,
        **own,
        "VERDICT": verdict,
        "probes": probes,
        "sweep": sweep,
        "grid": grid,
        "torch": torch,
    }


@pytest.mark.parametrize("call", MISUSES)
def test_a_misuse_is_said_in_one_sentence_and_leaves_nothing(call, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(MODEL.state_dict(), "theirs.pt")
    with pytest.raises(ValueError) as error:
        eval(call, names)
    message, rest = str(error.value), str(error.value)
    for part in MISUSES[call].split(" .* "):
        assert part in rest, message
        rest = rest.split(part, 1)[1]
    assert "\n" not in message and len(message) < 700
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.pt"]


@pytest.mark.parametrize(
    ("config", "name", "value", "held"),
    [
        (ModelConfig, "gamma", "0.5", 0.5),
        (ModelConfig, "gamma", torch.tensor(0.5), 0.5),
        (ModelConfig, "gamma", np.float32(0.5), 0.5),
        (ModelConfig, "gamma", np.array(0.5), 0.5),
        (ModelConfig, "n_layers", np.int64(3), 3),
        (ModelConfig, "n_layers", torch.tensor(3), 3),
        (ModelConfig, "n_layers", "3", 3),
        (ModelConfig, "num_experts", 4.0, 4),
        (TrainConfig, "steps", 1e3, 1000),
        (TrainConfig, "steps", "1e3", 1000),
        (TrainConfig, "seed", "9007199254740993", 9007199254740993),
        (TrainConfig, "lr", "1e-3", 1e-3),
        (TrainConfig, "lr", torch.tensor(0.25), 0.25),
        (AnchorTask, "seq_len", "10", 10),
        (AnchorTask, "noise_obeys_split", np.bool_(True), True),
    ],
)
def test_a_number_is_taken_in_every_exact_form(config, name, value, held):
    """One coercion for all configurations: what they hold is plain, and they are equal."""
    found = getattr(config(**{name: value}), name)
    assert found == held and type(found) is type(held)
    assert config(**{name: value}) == config(**{name: held}) == config.from_dict({name: value})
