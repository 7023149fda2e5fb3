"""Every key there is, with its default, and the papers' scaffolds. Experiments change a few."""

from ml_collections import ConfigDict, config_dict


def optional(kind: type) -> config_dict.FieldReference:
  """A key that may be None, and may be unset again on the command line (`--config.key=none`)."""
  reference = config_dict.placeholder(kind)
  reference.optional = True
  return reference


def get_config() -> ConfigDict:
  """A small causal language model on the text inside Python itself."""
  c = ConfigDict()
  c.seed = 0
  c.allow_leak = False  # train a language model that sees the future; its numbers then say LEAKY
  c.init_from = optional(str)  # workdir of another run whose weights to start from

  c.model = ConfigDict()
  c.model.mixer = 'softmax'  # softmax | sgn | fourier_qk | ega | chiar
  c.model.form = 'causal'  # causal | published (as in the paper, leak included) | bidirectional
  c.model.stack = optional(tuple)  # ((unit, repeats), ...); None: the mixer in every layer
  c.model.block = 'prenorm'  # prenorm | postnorm | sgn | chiar
  c.model.layers = 4
  c.model.width = 128
  c.model.heads = 4
  c.model.ffn = 4  # FFN width over model width
  c.model.context = 128
  c.model.vocab = optional(int)  # None: the tokenizer's
  c.model.vocab_multiple = 64
  c.model.positions = 'learned'  # learned | rope | none
  c.model.rope_base = 10_000.0
  c.model.tied = True
  c.model.qkv_bias = False
  c.model.out_bias = True
  c.model.dropout = 0.0
  c.model.init_std = 0.02
  c.model.dtype = 'float32'  # of the computation; parameters are float32
  c.model.scan_unroll = 1

  c.model.sgn = ConfigDict()
  c.model.sgn.operator = 'kernel'  # of the causal form: kernel | masked
  c.model.sgn.gated = True
  c.model.sgn.gate_std = 0.02

  c.model.fourier_qk = ConfigDict()
  c.model.fourier_qk.filter = 'gaussian'  # gaussian | mexican_hat | dc | nyquist | none
  c.model.fourier_qk.sigma = 2.0  # bins of the context
  c.model.fourier_qk.bin = 4.0  # initial centre, bins of the context
  c.model.fourier_qk.learned = True
  c.model.fourier_qk.norm = 'sum'  # sum | l2
  c.model.fourier_qk.periods = (50.0, 26.0, 10.0, 5.0)  # of the Mexican hats, tokens

  c.model.ega = ConfigDict()
  c.model.ega.znorm = optional(str)  # None: query if causal, sequence if published | prefix | none
  c.model.ega.scales = 1
  c.model.ega.alpha = 2.0
  c.model.ega.tau = 0.0
  c.model.ega.released = False  # the released code's floor of 1e-8 under each row's sum

  c.model.chiar = ConfigDict()
  c.model.chiar.tau = 0.5  # a token goes to attention when its spectral entropy is above
  c.model.chiar.meta = True  # MetaRouter around the first layer
  c.model.chiar.released = False  # the released code's DCT, which is not orthonormal

  c.data = ConfigDict()
  c.data.name = 'embedded'  # embedded | text (needs data.path) | tiny_shakespeare (TFDS)
  c.data.path = optional(str)  # a file or a folder of text
  c.data.dir = optional(str)  # TFDS data_dir; None: TFDS's own default
  c.data.validation = 0.1  # share of the text, taken from its end
  c.data.tokenizer = 'char'  # char | byte
  c.data.stride = 1  # tokens between the starts of training windows
  c.data.threads = 2  # reader threads of the input pipeline

  c.train = ConfigDict()
  c.train.steps = 600
  c.train.batch = 32
  c.train.accumulation = 1
  c.train.log_every = 20
  c.train.eval_every = 200
  c.train.checkpoint_every = 200
  c.train.keep = 2  # newest checkpoints kept, beside the best
  c.train.wall_minutes = optional(float)  # save and leave after so long
  c.train.compile_cache = True
  c.train.progress = True

  c.optim = ConfigDict()
  c.optim.lr = 1e-3
  c.optim.warmup = 50
  c.optim.final_lr = 0.0
  c.optim.b1 = 0.9
  c.optim.b2 = 0.95
  c.optim.eps = 1e-8
  c.optim.weight_decay = 0.1
  c.optim.decay_mechanism = False  # weight decay on gates, filter centres, tau and alpha too
  c.optim.clip = 1.0

  c.eval = ConfigDict()
  c.eval.protocol = 'full'  # full: the whole split in order | paper: random batches
  c.eval.split = 'validation'
  c.eval.batch = 32
  c.eval.stride = optional(int)  # fresh tokens a window; None: half the context
  c.eval.batches = 200  # protocol paper: random batches an evaluation
  c.eval.pick = 'best'  # protocol paper: best | last evaluation of the run

  c.sample = ConfigDict()
  c.sample.prompt = '\n'
  c.sample.tokens = 200
  c.sample.temperature = 0.8  # 0: greedy
  c.sample.top_k = optional(int)
  c.sample.count = 1

  c.mesh = ConfigDict()
  c.mesh.data = -1  # devices along each axis; -1 takes what is left
  c.mesh.fsdp = 1
  c.mesh.tensor = 1
  c.mesh.sequence = 1
  return c.lock()


def tiny_shakespeare() -> ConfigDict:
  """The scaffold that EGA and FourierQK share: a 6-layer GPT on TinyShakespeare's characters."""
  c = get_config()
  c.model.layers = 6
  c.model.width = 256
  c.model.heads = 8
  c.model.context = 256
  c.model.vocab = 65
  c.model.dropout = 0.1
  c.data.name = 'tiny_shakespeare'
  c.train.steps = 5000
  c.train.batch = 64
  c.train.eval_every = 500
  c.train.checkpoint_every = 500
  c.optim.lr = 3e-4
  c.optim.warmup = 300
  c.eval.batch = 64
  return c


def chiar_400m() -> ConfigDict:
  """The scaffold of CHIAR-Former v3: post-norm, RoPE, tied head, GPT-2 tokens of WikiText-103."""
  c = get_config()
  c.model.mixer = 'chiar'
  c.model.block = 'chiar'
  c.model.positions = 'rope'
  c.model.layers = 28
  c.model.width = 1024
  c.model.heads = 16
  c.model.context = 256
  c.model.vocab = 50257
  c.model.qkv_bias = True
  c.model.dropout = 0.1
  c.model.dtype = 'bfloat16'
  c.model.chiar.tau = 0.8947
  c.data.name = 'text'
  c.data.tokenizer = 'gpt2'
  c.data.stride = 256
  c.train.steps = 18_000  # some 5 epochs of WikiText-103 at 128 x 256 tokens
  c.train.batch = 128
  c.train.eval_every = 1000
  c.train.checkpoint_every = 1000
  c.optim.lr = 1e-4
  c.optim.final_lr = 1e-6
  c.optim.warmup = 1000
  c.optim.weight_decay = 0.01
  return c
