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
  # a Python file, or a module's name, that registers mixers of your own (docs/your_own_mixer.md)
  c.plugin = optional(str)
  # (first, last) step to trace, counted from 1, for TensorBoard's profiler or Perfetto
  c.profile_steps = ()
  # what a plan is for: v5e-64, v5p-128, h100-8, cpu-8, ...; None: the devices here
  c.target = optional(str)

  c.model = ConfigDict()
  # softmax | sgn | fourier_qk | ega | ega_fourier_qk | chiar | linear | performer | haar | fnet |
  # uniform | identity
  c.model.mixer = 'softmax'
  c.model.form = 'causal'  # causal | published (as in the paper, leak included) | bidirectional
  c.model.stack = optional(tuple)  # ((unit, repeats), ...); None: the mixer in every layer
  c.model.block = 'prenorm'  # prenorm | postnorm | sgn | sgn_bare | chiar
  c.model.layers = 4
  c.model.width = 128
  c.model.heads = 4
  c.model.ffn = 4  # FFN width over model width
  c.model.context = 128
  c.model.vocab = optional(int)  # None: the tokenizer's
  c.model.vocab_multiple = 64
  c.model.classes = optional(int)  # data.task classify; None: the data's; 1: a number
  c.model.pooling = 'mean'  # data.task classify: mean (of the real tokens) | cls (a vector before)
  c.model.image = optional(tuple)  # (rows, columns, channels) of images to classify; None: text
  c.model.patch = 4  # pixels a side of the patches of images, which are the tokens
  c.model.positions = 'learned'  # learned | rope | alibi | none
  c.model.rope_base = 10_000.0
  c.model.tied = True
  c.model.qkv_bias = False
  c.model.out_bias = True
  c.model.dropout = 0.0
  c.model.init_std = 0.02
  c.model.dtype = 'float32'  # of the computation; parameters are float32
  c.model.scan_unroll = 1
  # what the backward pass computes again: none | dots (all but matrix products) | all (of a layer)
  c.model.remat = 'none'

  c.model.sgn = ConfigDict()
  c.model.sgn.operator = 'kernel'  # of the causal form: kernel | masked
  c.model.sgn.basis = 'dct'  # dct | fft (complex gate) | adaptive (learned mixture with Haar)
  c.model.sgn.gate = 'learned'  # learned | random (frozen at its start) | lowpass (fixed)
  c.model.sgn.gated = True
  c.model.sgn.gate_std = 0.02
  c.model.sgn.cutoff = 0.25  # gate lowpass: exp(-f / cutoff), f from 0 to 1 over the frequencies
  c.model.sgn.retained = optional(int)  # coefficients kept, the lowest; None: all
  c.model.sgn.resolutions = 1  # kernels of context, context / 2, context / 4, ... added
  c.model.sgn.groups = 4  # basis adaptive: groups of channels, each with its own mixture
  c.model.sgn.grid = optional(tuple)  # (rows, columns) of image patches: a 2-D transform
  # how a kernel takes one token at a time: ring (O(N)) | blocked (O(log^2 N) on average) | auto
  c.model.sgn.streaming = 'auto'

  c.model.fourier_qk = ConfigDict()
  # gaussian | mexican_hat | paul | morlet | ladder | random | spectral (taps only) | dc | nyquist
  c.model.fourier_qk.filter = 'gaussian'
  c.model.fourier_qk.kernel = 'response'  # response: over the whole context | taps: causal FIR
  c.model.fourier_qk.scores = 'real'  # real | analytic (with the quadrature branch)
  c.model.fourier_qk.bins = (4.0,)  # initial centres, bins of the context, one a filter
  c.model.fourier_qk.sigma = 2.0  # width of gaussian, ladder and spectral, bins of the context
  c.model.fourier_qk.periods = (50.0, 26.0, 10.0, 5.0)  # mexican_hat, paul, morlet: peaks, tokens
  c.model.fourier_qk.widths = (8.0,)  # kernel taps: initial scales a of the taps, tokens
  c.model.fourier_qk.taps = 128
  c.model.fourier_qk.order = 4  # of the Paul wavelet
  c.model.fourier_qk.omega0 = 6.0  # carrier of the Morlet wavelet
  c.model.fourier_qk.learned = True
  c.model.fourier_qk.norm = 'sum'  # sum | l2
  # phases changed at evaluation: random | independent | amplitude | shift; None: as they are
  c.model.fourier_qk.surrogate = optional(str)
  c.model.fourier_qk.streaming = 'auto'  # of its filters, as in sgn: ring | blocked | auto

  c.model.ega = ConfigDict()
  # linear | conv | morlet | daubechies | learned_wavelet | packet
  c.model.ega.energy = 'linear'
  c.model.ega.znorm = optional(str)  # None: query if causal, sequence if published | prefix | none
  c.model.ega.scales = 1  # of the linear energy
  c.model.ega.lengths = (3, 7, 15, 31)  # taps of conv and morlet, one a scale
  c.model.ega.wavelet = 'db4'  # of daubechies and packet, and where learned_wavelet starts
  c.model.ega.levels = 3  # of the wavelets
  c.model.ega.input = 'projection'  # of morlet and the wavelets: projection | mean (published)
  c.model.ega.orthonormal = True  # learned_wavelet: keep the filters orthonormal
  c.model.ega.pad = 'zero'  # before the start: zero | reflect (published text, sees the future)
  c.model.ega.alpha = (2.0,)  # initial, one for all scales or one each
  c.model.ega.tau = (0.0,)
  c.model.ega.released = False  # the released code: floor under each row's sum, Morlet envelope

  c.model.chiar = ConfigDict()
  c.model.chiar.router = 'threshold'  # threshold | soft | hard | random
  c.model.chiar.tau = 0.5  # a token goes to attention when its spectral entropy is above
  # what tau was calibrated under: dct | released | orthogonal | permuted; other models refuse it
  c.model.chiar.calibrated = optional(str)
  c.model.chiar.rbf = False  # v1: a third operator, between tau_low and tau
  c.model.chiar.tau_low = 0.4
  c.model.chiar.rbf_features = 64
  c.model.chiar.rbf_gamma = 1.0
  # share of tokens expected at attention: what router random draws, and what `capacity` follows
  c.model.chiar.rate = 0.5
  # dense: all operators on all tokens | capacity: attention in a window's slots, by arrival
  c.model.chiar.dispatch = 'dense'
  c.model.chiar.route_window = 128
  # share of a window that has slots; None: 1.25 times the rate, up to a multiple of 8 tokens
  c.model.chiar.capacity = optional(float)
  c.model.chiar.kv = 'all'  # who gives keys and values: all | routed (the tokens that attend)
  c.model.chiar.basis = 'dct'  # of entropy and mixing: dct | orthogonal (random) | permuted
  c.model.chiar.collapse = 0.0  # weight of the regulariser against routers that always agree
  c.model.chiar.meta = True  # MetaRouter around the first layer
  c.model.chiar.meta_hard = False  # at inference, the first layer is taken or skipped
  c.model.chiar.released = False  # the released code's DCT, which is not orthonormal

  c.model.baselines = ConfigDict()
  c.model.baselines.features = 64  # performer: random features a head
  c.model.baselines.levels = 5  # haar: averages over 2, 4, ..., 2^levels tokens

  c.data = ConfigDict()
  # embedded | text (needs data.path) | a set of sgnjax/data/sets.py, by TFDS or from data.path
  c.data.name = 'embedded'
  c.data.path = optional(str)  # a file or a folder of text, or of a set's plain files
  c.data.dir = optional(str)  # TFDS data_dir; None: TFDS's own default
  c.data.slice = optional(str)  # of the train split, as TFDS takes it: ':1%' or ':100000'
  c.data.validation = 0.1  # share of a text without parts, taken from its end
  # lm | mlm (masked tokens) | classify (a document or an image, and its label) | recall (what a
  # recall set asks for)
  c.data.task = 'lm'
  c.data.mask_rate = 0.15  # task mlm: share of the tokens that are asked for
  # task classify: layers and pooling leave padding out; false: padding is a token as others are,
  # for mixers that honour no mask
  c.data.mask_padding = True
  c.data.tokenizer = 'char'  # char | byte | word | gpt2 | bpe | unigram
  # a tokenizer.json, as a run or --job=tokenizer writes it; gpt2: a folder of its two files
  c.data.tokenizer_path = optional(str)
  c.data.vocab_size = optional(int)  # word: the most frequent; --job=tokenizer: what it trains
  c.data.cache_dir = optional(str)  # for tokens of long texts; None: the user's cache folder
  c.data.image_size = optional(int)  # images are scaled and cut to; None: as they are
  c.data.augment = 'none'  # of training images: none | light (crop, mirror) | papers (colours too)
  c.data.mixup = 0.0  # of training images: alpha of the mixing weights' Beta(alpha, alpha); 0: none
  c.data.packing = False  # documents packed into rows, none seeing another
  c.data.mixture = ()  # other sets, ((name, weight), ...) or ((name, weight, path), ...)
  c.data.mixture_rate = 0.25  # probability that a step has a batch of one of them too
  c.data.stride = 1  # tokens between the starts of training windows
  c.data.threads = 2  # reader threads of the input pipeline
  c.data.workers = 0  # reader processes, instead of threads
  c.data.prefetch = 8  # batches read ahead

  c.train = ConfigDict()
  c.train.steps = 600
  c.train.batch = 32
  c.train.accumulation = 1
  c.train.label_smoothing = 0.0  # task classify: probability given to all classes alike
  c.train.ema = 0.0  # decay of the average of the weights that is evaluated and used; 0: none
  c.train.log_every = 20
  c.train.eval_every = 200
  c.train.checkpoint_every = 200
  c.train.keep = 2  # newest checkpoints kept, beside the best
  c.train.wall_minutes = optional(float)  # save and leave after so long
  c.train.wall_status = 0  # exit status of a run that left so, for a scheduler to start it again
  c.train.compile_cache = True
  c.train.progress = True
  c.train.wandb = optional(str)  # a project of Weights & Biases that is told the numbers too

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

  c.audit = ConfigDict()
  c.audit.variants = optional(str)  # all, or how their names begin: audits the named variants

  c.scaling = ConfigDict()
  # what --job=scaling measures: variants of sgnjax/models/variants.py, and numbers of tokens
  c.scaling.mixers = ('softmax', 'ega-prefix', 'fourier_qk', 'chiar', 'sgn', 'linear')
  c.scaling.lengths = (256, 1024, 2048, 4096, 8192, 16384, 65536, 2**18, 2**20)
  c.scaling.seconds = 20.0  # a step that is likely to take longer is not run
  c.scaling.memory_gib = 10.0  # nor one whose program holds more
  c.scaling.devices = 8  # that the length lies over where collectives are counted

  c.sample = ConfigDict()
  c.sample.prompt = '\n'
  c.sample.prompts = optional(str)  # a file of prompts, one a line, in the place of `prompt`
  c.sample.tokens = 200
  c.sample.temperature = 0.8  # 0: greedy
  c.sample.top_k = optional(int)  # draw among the k likeliest tokens alone
  c.sample.top_p = optional(float)  # among the likeliest whose probabilities first reach p
  c.sample.repetition_penalty = 1.0  # above 1: tokens that were there are less likely
  c.sample.stop = ()  # texts that end a sample, as ("\\n\\n",)
  c.sample.slide = True  # past the context: drop the oldest; false: go on, where the model can
  c.sample.stream = True  # a single text is shown as it is written
  c.sample.count = 1  # texts a prompt

  c.score = ConfigDict()
  c.score.text = optional(str)  # whose log-probabilities --job=score tells
  c.score.path = optional(str)  # or a file of text
  c.score.lines = False  # each line of the file is a text of its own
  c.score.stride = optional(int)  # fresh tokens a window of long texts; None: half the context

  c.benchmark = ConfigDict()
  # step: a training step of this config | all | some of ops, mixers, train, decode, data, compile,
  # peers, tpu, gpu, or of their sections: 'ops,train/loop'
  c.benchmark.parts = 'step'
  c.benchmark.repeats = 10  # rounds of a comparison
  c.benchmark.seconds = 30.0  # after which a comparison begins no further round (but 3 are taken)
  c.benchmark.contexts = (256, 2048, 8192, 65_536)  # at which SGN and attention are compared
  c.benchmark.lengths = (1024, 4096, 16_384, 65_536)  # over which an exponent is fitted
  c.benchmark.page = optional(str)  # a Markdown file to write beside the one in the workdir
  c.benchmark.resume = False  # sections that the workdir has already are kept

  c.reproduce = ConfigDict()
  c.reproduce.claims = 'all'  # identifiers or how they begin: ega-03,ega-06,chi
  c.reproduce.budget = optional(str)  # of time, as 20m: trainings are made as large as fits
  c.reproduce.size = 'small'  # of trainings without a budget: tiny | small | middle | large

  c.lr_range = ConfigDict()  # --job=lr_range: a run whose learning rate grows, geometrically
  c.lr_range.low = 1e-6
  c.lr_range.high = 1.0
  c.lr_range.steps = 100

  c.export = ConfigDict()
  c.export.folder = optional(str)  # where --job=export writes; None: `export` in the workdir
  c.export.programs = True  # compiled programs of the model beside its weights
  c.export.platforms = ('cpu', 'cuda', 'tpu')  # that the programs run on; rocm is another
  c.export.batch = optional(int)  # rows that the programs take; None: any number
  c.export.tokens = optional(int)  # that the caches of the decode step have room for; None: context

  c.mesh = ConfigDict()
  c.mesh.data = -1  # devices along each axis; -1 takes what is left
  c.mesh.fsdp = 1
  c.mesh.tensor = 1
  c.mesh.sequence = 1

  c.hosts = ConfigDict()
  # how processes find each other: auto | none (each alone) | variables | slurm | tpu, or a name of
  # JAX's own: ompi | gketpu | gcetpu | k8s | mpi4py
  c.hosts.connect = 'auto'
  c.hosts.start_seconds = 300  # for all processes to appear
  c.hosts.heartbeat_seconds = 100  # a process that is silent for so long is lost
  c.hosts.end_seconds = 300  # for all processes to arrive at the end
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


def sgn() -> ConfigDict:
  """The scaffold of SGN: 12 layers of width 768, context 512, WikiText-103, its AdamW."""
  c = get_config()
  c.model.mixer = 'sgn'
  c.model.layers = 12
  c.model.width = 768
  c.model.heads = 12
  c.model.context = 512
  c.model.vocab = 50257
  c.model.dropout = 0.1
  c.model.dtype = 'bfloat16'
  c.data.name = 'wikitext103'
  c.data.tokenizer = 'gpt2'
  c.data.stride = 512
  c.train.steps = 92_000  # some 100 epochs of WikiText-103 at 256 x 512 tokens
  c.train.batch = 256
  c.train.eval_every = 2000
  c.train.checkpoint_every = 1000
  c.optim.lr = 3e-4
  c.optim.b2 = 0.98
  c.optim.warmup = 2000
  c.optim.weight_decay = 0.01
  c.eval.stride = 256
  c.mesh.data = 1
  c.mesh.fsdp = -1
  return c


def sgn_images() -> ConfigDict:
  """The scaffold of SGN on images: 8 x 8 patches of CIFAR, width 384, a DCT over the whole row."""
  c = sgn()
  c.model.form = 'published'
  c.model.width = 384
  c.model.heads = 6
  c.model.context = 64
  c.model.vocab = None
  c.model.image = (32, 32, 3)
  c.model.sgn.gated = False
  c.data.task = 'classify'
  c.data.tokenizer = 'char'
  c.data.augment = 'papers'
  c.train.batch = 128
  c.optim.lr = 1e-3
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
  c.data.name = 'wikitext103'
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
  c.mesh.data = 1
  c.mesh.fsdp = -1  # every device keeps its part of the parameters
  return c
