"""The jobs of `launch/main.py`: each a module here with `run(config, workdir) -> exit status`."""

JOBS = {
  'train': 'train the model, resuming what the workdir holds',
  'eval': 'evaluate the best checkpoint of the workdir',
  'audit': 'prove that the model is blind to the future, or name the layer that is not',
  'plan': 'parameters, FLOPs and memory, without data and without training',
  'prepare': "fetch and prepare the config's data set, with TFDS",
  'tokenizer': 'train a BPE or unigram tokenizer on the text of the config',
  'calibrate': "CHIAR's routing thresholds, from the entropies of real tokens",
  'sample': 'write text with the best checkpoint of the workdir',
  'score': 'log-probabilities of a text (score.text or score.path)',
  'benchmark': 'step time and share of the matrix rate; benchmark.parts: all else that is timed',
  'sweep': 'train every point of the grid that the config names, and tell all in one table',
  'scaling': 'time, memory, FLOPs and collectives against the length, for every mixer',
  'compare': 'runs side by side on one page: --job=compare RUN_A RUN_B ...',
  'leakage': 'the shuffled gap of the workdir beside the audit of its weights',
  'reproduce': 'verdicts on the claims of the papers: --claims=ega-03,ega-06 --budget=20m',
  'export': 'weights, programs that need jax alone, and a model card, in a folder',
  'lr_range': 'which learning rates learn: a short run whose rate grows, and its picture',
  'doctor': 'what is installed here, what would not work, and why',
  'completion': 'completion of jobs, configs and keys for bash and zsh',
  'list': 'the configs there are, one line each',
}
OWN_CONFIG = ('reproduce',)  # need no --config
ALONE = ('list', 'compare', 'completion')  # of no config
TOGETHER = ('train', 'eval', 'benchmark')  # run in several processes where several are started
