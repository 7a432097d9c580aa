// Package config holds the scenario: the structs a file is decoded into, strict loading with every problem at
// line:column, dotted overrides, defaults and the rules between keys.
//
// Section names are Megatron-Bridge's and keys are Megatron-Core's; transport, recovery, faults, mutate, probe, expect, variants and
// dist are ours.
package config

// Scenario is one run: what a scenario file says after defaults and overrides.
type Scenario struct {
	Name       string     `yaml:"name"`
	About      string     `yaml:"about"`
	Model      Model      `yaml:"model"`
	Train      Train      `yaml:"train"`
	Optimizer  Optimizer  `yaml:"optimizer"`
	Scheduler  Scheduler  `yaml:"scheduler"`
	DDP        DDP        `yaml:"ddp"`
	Dataset    Dataset    `yaml:"dataset"`
	Tokenizer  Tokenizer  `yaml:"tokenizer"`
	RNG        RNG        `yaml:"rng"`
	Dist       Dist       `yaml:"dist"`
	Transport  Transport  `yaml:"transport"`
	Recovery   Recovery   `yaml:"recovery"`
	Logger     Logger     `yaml:"logger"`
	Checkpoint Checkpoint `yaml:"checkpoint"`
	Variants   []Variant  `yaml:"variants"`
	Mutate     []string   `yaml:"mutate"`
	Probe      Probe      `yaml:"probe"`
	Faults     []Injected `yaml:"faults"`
	Expect     []Expect   `yaml:"expect"`

	// Dir is the folder of the file: relative paths of the scenario start there. Not a key.
	Dir string `yaml:"-"`
	// Notes say what is legal but probably not meant: keys without effect, things Megatron refuses. Not a key.
	Notes []string `yaml:"-"`
	// NeedsProcs are the keys that need ranks in processes of their own, with their places. Not a key.
	NeedsProcs Problems `yaml:"-"`
}

// Model has Megatron-Core's names.
type Model struct {
	NumLayers             int     `yaml:"num_layers"`
	HiddenSize            int     `yaml:"hidden_size"`
	NumAttentionHeads     int     `yaml:"num_attention_heads"`
	NumQueryGroups        int     `yaml:"num_query_groups"` // default: num_attention_heads
	KVChannels            int     `yaml:"kv_channels"`      // default: hidden_size / num_attention_heads
	FFNHiddenSize         int     `yaml:"ffn_hidden_size"`  // default: 4·hidden_size
	PaddedVocabSize       int     `yaml:"padded_vocab_size"`
	LayernormEpsilon      float64 `yaml:"layernorm_epsilon"`
	Normalization         string  `yaml:"normalization"` // RMSNorm | LayerNorm
	LayernormZeroCentered bool    `yaml:"layernorm_zero_centered_gamma"`
	PositionEmbedding     string  `yaml:"position_embedding_type"` // rope | learned_absolute | none
	MaxPositionEmbeddings int     `yaml:"max_position_embeddings"` // rows of the table of learned positions; default: seq_length
	RotaryBase            float64 `yaml:"rotary_base"`
	RotaryPercent         float64 `yaml:"rotary_percent"` // share of a head's channels that turn
	RotaryInterleaved     bool    `yaml:"rotary_interleaved"`
	RopeScaling           bool    `yaml:"rope_scaling"` // Llama 3's
	RopeScalingFactor     float64 `yaml:"rope_scaling_factor"`
	QKLayernorm           bool    `yaml:"qk_layernorm"`
	AddQKVBias            bool    `yaml:"add_qkv_bias"`
	AddBiasLinear         bool    `yaml:"add_bias_linear"`
	GatedLinearUnit       bool    `yaml:"gated_linear_unit"`
	ActivationFunc        string  `yaml:"activation_func"` // silu (with gated_linear_unit) or squared_relu (without)
	UntieEmbeddings       bool    `yaml:"untie_embeddings_and_output_weights"`
	InitMethodStd         float64 `yaml:"init_method_std"`
	HiddenDropout         float64 `yaml:"hidden_dropout"`
	AttentionDropout      float64 `yaml:"attention_dropout"`

	NumMoEExperts       int       `yaml:"num_moe_experts"`
	MoELayerFreq        LayerFreq `yaml:"moe_layer_freq"` // an integer n (every n-th layer, from 0) or a list of 0/1
	MoEFFNHiddenSize    int       `yaml:"moe_ffn_hidden_size"`
	MoERouterTopK       int       `yaml:"moe_router_topk"`
	MoERouterScore      string    `yaml:"moe_router_score_function"` // softmax
	MoERouterPreSoftmax bool      `yaml:"moe_router_pre_softmax"`
	MoERouterBalancing  Words     `yaml:"moe_router_load_balancing_type"` // none, or aux_loss, seq_aux_loss, global_aux_loss: one or a list
	MoEAuxLossCoeff     Numbers   `yaml:"moe_aux_loss_coeff"`             // one for all, or one for each
	MoEZLossCoeff       float64   `yaml:"moe_z_loss_coeff"`               // null = 0
	MoESeqAuxPerRow     bool      `yaml:"moe_seq_aux_per_row"`

	MoERouterNumGroups          int     `yaml:"moe_router_num_groups"` // 0: no groups
	MoERouterGroupTopK          int     `yaml:"moe_router_group_topk"`
	MoERouterTopKScaling        float64 `yaml:"moe_router_topk_scaling_factor"` // 0: none
	MoERouterEnableExpertBias   bool    `yaml:"moe_router_enable_expert_bias"`
	MoERouterBiasUpdateRate     float64 `yaml:"moe_router_bias_update_rate"`
	MoERouterForceLoadBalancing bool    `yaml:"moe_router_force_load_balancing"`
	MoERouterFusion             bool    `yaml:"moe_router_fusion"`
	MoEInputJitterEps           float64 `yaml:"moe_input_jitter_eps"`
	MoESharedExpertSize         int     `yaml:"moe_shared_expert_intermediate_size"` // 0: none
	MoESharedExpertGate         bool    `yaml:"moe_shared_expert_gate"`
	MoEPerLayerLogging          bool    `yaml:"moe_per_layer_logging"`
	MoEEnableRoutingReplay      bool    `yaml:"moe_enable_routing_replay"`
	MoETokenDispatcher          string  `yaml:"moe_token_dispatcher_type"`  // alltoall | allgather | flex
	MoEExpertCapacityFactor     float64 `yaml:"moe_expert_capacity_factor"` // 0: no limit
	MoETokenDropPolicy          string  `yaml:"moe_token_drop_policy"`      // probs | position
	MoEPadExpertInput           bool    `yaml:"moe_pad_expert_input_to_capacity"`
	MoEDropPaddingTokens        bool    `yaml:"moe_drop_padding_tokens"`
	RecomputeGranularity        string  `yaml:"recompute_granularity"` // full | selective

	MTPNumLayers        int     `yaml:"mtp_num_layers"`
	MTPLossScaling      float64 `yaml:"mtp_loss_scaling_factor"`
	MTPUseRepeatedLayer bool    `yaml:"mtp_use_repeated_layer"`
	MTPDetachHeads      bool    `yaml:"mtp_detach_heads"`
	// MTPLossMask says whether the loss mask reaches the MTP depths: passed (default), or withheld, the bug of
	// Megatron-Bridge#6103, in which the depths fall back to a mask of ones while the LM loss keeps its mask.
	MTPLossMask string `yaml:"mtp_loss_mask"`

	CalculatePerTokenLoss bool    `yaml:"calculate_per_token_loss"`
	LossNormalization     string  `yaml:"loss_normalization"` // exact | upstream
	LabelSmoothing        float64 `yaml:"label_smoothing_factor"`

	TensorParallel   int    `yaml:"tensor_model_parallel_size"`
	SequenceParallel bool   `yaml:"sequence_parallel"`
	ContextParallel  int    `yaml:"context_parallel_size"`
	CPCommType       string `yaml:"cp_comm_type"` // p2p (default) | all_gather | a2a
	PipelineParallel int    `yaml:"pipeline_model_parallel_size"`

	VirtualPipeline       int    `yaml:"virtual_pipeline_model_parallel_size"` // 0: 1, or what the layout has
	LayersPerVirtualStage int    `yaml:"num_layers_per_virtual_pipeline_stage"`
	LayersInFirstStage    int    `yaml:"num_layers_in_first_pipeline_stage"` // 0: an even share
	LayersInLastStage     int    `yaml:"num_layers_in_last_pipeline_stage"`
	AccountForEmbedding   bool   `yaml:"account_for_embedding_in_pipeline_split"`
	AccountForLoss        bool   `yaml:"account_for_loss_in_pipeline_split"`
	PipelineLayoutText    string `yaml:"pipeline_model_parallel_layout"`     // E|t*3|(t|)*3tt|m|L; empty: by count
	MicrobatchGroup       int    `yaml:"microbatch_group_size_per_vp_stage"` // 0: pipeline_model_parallel_size

	ExpertParallel       int `yaml:"expert_model_parallel_size"`
	ExpertTensorParallel int `yaml:"expert_tensor_parallel_size"` // 1: every rank holds whole experts (Megatron's default is TP)
}

// Train says how long and how much at a time.
type Train struct {
	TrainIters          int    `yaml:"train_iters"`
	MicroBatchSize      int    `yaml:"micro_batch_size"`
	GlobalBatchSize     int    `yaml:"global_batch_size"`
	DType               string `yaml:"dtype"`         // fp32 | fp64
	EvalInterval        int    `yaml:"eval_interval"` // 0: never
	EvalIters           int    `yaml:"eval_iters"`
	CheckForNaNInLoss   bool   `yaml:"check_for_nan_in_loss"` // a loss that is not finite ends the run
	SkipNaNMicrobatches bool   `yaml:"skip_nan_microbatches"` // drop a microbatch whose loss is not finite
	SkipNaNSteps        bool   `yaml:"skip_nan_steps"`        // a step whose gradient is not finite changes nothing
	Threads             int    `yaml:"threads"`               // compute threads of this process; 0: one per core. Changes no bit.
}

// Optimizer is AdamW with decoupled decay.
type Optimizer struct {
	Optimizer   string  `yaml:"optimizer"` // adam
	LR          float64 `yaml:"lr"`
	MinLR       float64 `yaml:"min_lr"`
	WeightDecay float64 `yaml:"weight_decay"`
	AdamBeta1   float64 `yaml:"adam_beta1"`
	AdamBeta2   float64 `yaml:"adam_beta2"`
	AdamEps     float64 `yaml:"adam_eps"`
	ClipGrad    float64 `yaml:"clip_grad"` // 0: no clipping

	// The embedding and the output layer may have a rate of their own.
	DecoupledLR    *float64 `yaml:"decoupled_lr"`     // null: lr
	DecoupledMinLR *float64 `yaml:"decoupled_min_lr"` // null: min_lr

	ApplyWDToQKLayernorm bool `yaml:"apply_wd_to_qk_layernorm"`
	// UseDistributedOptimizer: the ranks that hold the same parameters share their update (ZeRO 1); ddp's key of that
	// name says the same.
	UseDistributedOptimizer bool `yaml:"use_distributed_optimizer"`
}

// DDP is how gradients are added over the ranks that hold the same parameters.
type DDP struct {
	UseDistributedOptimizer bool  `yaml:"use_distributed_optimizer"`
	GradReduceInFP32        *bool `yaml:"grad_reduce_in_fp32"` // false: bf16 on the wire
	BucketSize              int   `yaml:"bucket_size"`         // elements; 0: a default of ours
	CheckForNaNInGrad       bool  `yaml:"check_for_nan_in_grad"`
	OverlapGradReduce       bool  `yaml:"overlap_grad_reduce"` // while the backward pass goes on
}

// BF16 reports whether gradients are rounded to bfloat16 for their reduction over data-parallel ranks.
func (d *DDP) BF16() bool { return d.GradReduceInFP32 != nil && !*d.GradReduceInFP32 }

// Scheduler sets the learning rate and the weight decay over the run. Iterations count successful optimizer steps, samples
// the rows of their batches.
type Scheduler struct {
	LRDecayStyle    string  `yaml:"lr_decay_style"` // constant | linear | cosine | inverse-square-root | WSD
	LRDecayIters    int     `yaml:"lr_decay_iters"` // default: train_iters
	LRWarmupIters   int     `yaml:"lr_warmup_iters"`
	LRWarmupInit    float64 `yaml:"lr_warmup_init"`
	LRWSDDecayIters int     `yaml:"lr_wsd_decay_iters"`
	LRWSDDecayStyle string  `yaml:"lr_wsd_decay_style"` // exponential | linear | cosine | minus_sqrt

	// The same in samples, in place of iterations, and the warm-up as a share of the decay.
	LRDecaySamples    int      `yaml:"lr_decay_samples"`
	LRWarmupSamples   int      `yaml:"lr_warmup_samples"`
	LRWarmupFraction  *float64 `yaml:"lr_warmup_fraction"`
	LRWSDDecaySamples int      `yaml:"lr_wsd_decay_samples"`

	StartWeightDecay     *float64 `yaml:"start_weight_decay"` // null: optimizer.weight_decay, as is the next
	EndWeightDecay       *float64 `yaml:"end_weight_decay"`
	WeightDecayIncrStyle string   `yaml:"weight_decay_incr_style"` // constant | linear | cosine
}

// Dataset names the data. Which keys are legal depends on kind.
type Dataset struct {
	Kind      string   `yaml:"kind"` // rows | synthetic | text | jsonl | indexed | reference
	SeqLength int      `yaml:"seq_length"`
	Paths     []string `yaml:"paths"` // text, jsonl: files, read in order; .gz is unpacked
	Path      string   `yaml:"path"`  // reference: CASE.json; indexed: PREFIX of PREFIX.bin and PREFIX.idx
	Rows      []Row    `yaml:"rows"`
	// ValidationShare is the share of a text, or of the documents of a jsonl file, kept for validation, taken from its end.
	ValidationShare float64 `yaml:"validation_share"`
	// Split (text, jsonl, indexed) are weights of training, validation and test, as ParseSplit reads them.
	Split          string `yaml:"split"`
	PadTo          string `yaml:"pad_to"` // jsonl: seq_length (default) | longest (of the microbatch)
	PadToken       int    `yaml:"pad_token"`
	AnswerOnlyLoss bool   `yaml:"answer_only_loss"` // jsonl with prompt+completion or messages
	// PaddingMask says whether batches carry a padding mask: present | absent. A property of configuration, never of
	// content. Default: present for rows, synthetic with padding and jsonl; absent for text.
	PaddingMask string `yaml:"padding_mask"`
	// LossMask: present | absent (all ones for the LM loss too).
	LossMask string `yaml:"loss_mask"`
	Shuffle  bool   `yaml:"shuffle"` // text, jsonl, indexed: sample order is f(seed, epoch); default true
	// MinValid (synthetic): rows are valid up to a length drawn from [min_valid, seq_length]; 0: all full.
	MinValid int `yaml:"min_valid"`
	// Packed (synthetic, jsonl): a row holds several documents behind each other, and nothing crosses from one to the next.
	Packed bool `yaml:"packed"`
	// PadToMultiple (packed): every document's place has a length that is a multiple of this.
	PadToMultiple int `yaml:"pad_to_multiple"`
	// PackingAlgorithm (packed jsonl): next_fit | best_fit, the latter over PackingWindow documents at a time.
	PackingAlgorithm string `yaml:"packing_algorithm"`
	PackingWindow    int    `yaml:"packing_window"`
	// Embeddings (rows, synthetic): precomputed, seeded vectors in place of the embedding table's; empty: tokens are looked up.
	Embeddings string `yaml:"embeddings"`
}

// Row is one explicit row. Give valid (a length, tokens are synthetic), tokens, or documents alone (synthetic too). The
// other lists have one entry for each position: for each token, or for each place of the documents.
type Row struct {
	Valid       *int    `yaml:"valid"`
	Tokens      []int   `yaml:"tokens"`
	Labels      []int   `yaml:"labels"`
	LossMask    []int   `yaml:"loss_mask"`
	PaddingMask []int   `yaml:"padding_mask"`
	Answer      *[2]int `yaml:"answer"` // label positions [from, to) that count in the loss, the rest do not
	// Documents are the lengths of the documents of a packed row, DocumentsPadded those of their places; Layout puts them
	// together. CuSeqlens and CuSeqlensPadded are Megatron's spelling: 0 and where each one ends.
	Documents       []int `yaml:"documents"`
	DocumentsPadded []int `yaml:"documents_padded"`
	CuSeqlens       []int `yaml:"cu_seqlens"`
	CuSeqlensPadded []int `yaml:"cu_seqlens_padded"`
	PositionIDs     []int `yaml:"position_ids"` // default: they restart in each document
}

// Tokenizer turns text into tokens.
type Tokenizer struct {
	Kind string `yaml:"kind"` // byte | huggingface | tiktoken
	// Model is a file: huggingface: tokenizer.json; tiktoken: ranks, a token in base64 and its id a line.
	Model string `yaml:"tokenizer_model"`
	// TiktokenPattern names how a text is split before merging; TiktokenSpecialTokens are NAME or NAME=ID.
	TiktokenPattern       string   `yaml:"tiktoken_pattern"`
	TiktokenSpecialTokens []string `yaml:"tiktoken_special_tokens"`
}

// RNG seeds every random choice.
type RNG struct {
	Seed uint64 `yaml:"seed"`
}

// Dist is the size of the job; 0 means tensor_model_parallel_size × data parallel 1.
type Dist struct {
	WorldSize int `yaml:"world_size"`
}

// Transport carries tensors between ranks.
type Transport struct {
	Kind       string `yaml:"kind"`      // nats | direct
	Embedded   *bool  `yaml:"embedded"`  // start a server in this process (default unless url)
	Servers    int    `yaml:"servers"`   // NATS servers that run --procs starts: 1, or a cluster of 3
	URL        string `yaml:"url"`       // a running server
	Colocated  string `yaml:"colocated"` // nats (default) | direct: ranks of one process hand slices over
	PieceBytes int    `yaml:"piece_bytes"`

	// Files for the server at URL, below Dir when relative.
	Creds   string `yaml:"creds"`    // NATS credentials
	NKey    string `yaml:"nkey"`     // seed of a NATS user key
	TLSCA   string `yaml:"tls_ca"`   // certificates that the server's is signed by
	TLSCert string `yaml:"tls_cert"` // this client's certificate
	TLSKey  string `yaml:"tls_key"`  // and its key
}

// Recovery says how ranks are started again.
type Recovery struct {
	SnapshotEvery  int     `yaml:"snapshot_every"` // steps; 0: a rank that fails ends the run
	SnapshotBytes  int     `yaml:"snapshot_bytes"` // of a sender log: more asks for a snapshot before snapshot_every
	LogBytes       int     `yaml:"log_bytes"`      // of a sender log: more ends the run; 0: no bound
	RankRestarts   int     `yaml:"rank_restarts"`
	JobRestarts    int     `yaml:"job_restarts"`
	RestartWindowS float64 `yaml:"restart_window_s"`
	HeartbeatMs    int     `yaml:"heartbeat_ms"`
	Supervisors    int     `yaml:"supervisors"` // 1 or 3 processes that watch over the ranks
	Recording      bool    `yaml:"recording"`   // what ranks receive is kept on disk, for `phalanx replay`
	// CollectiveTimeoutS: after this long with every rank waiting and none moving, the run ends with the blocked-on list.
	CollectiveTimeoutS float64 `yaml:"collective_timeout_s"`
}

// Logger says what is printed.
type Logger struct {
	LogInterval     int  `yaml:"log_interval"`
	TokenLossReport bool `yaml:"token_loss_report"` // per depth: loss, mass on padding, per-token percentiles
	MaskReport      bool `yaml:"mask_report"`       // per depth: padding mask rows, valid tokens at the router
}

// Checkpoint says where the state of a run goes and comes from.
type Checkpoint struct {
	Save         string `yaml:"save"`          // folder; below --out when relative
	SaveInterval int    `yaml:"save_interval"` // 0: at the end only
	SaveOptim    bool   `yaml:"save_optim"`    // moments too
	MostRecentK  int    `yaml:"most_recent_k"` // older ones are removed; -1 or 0: none
	// Load is a folder of checkpoints, the run goes on where the newest ended; or weights under Hugging Face names.
	Load                    string `yaml:"load"`
	CkptStep                int    `yaml:"ckpt_step"` // the checkpoint of this iteration; 0: the newest
	LoadOptim               bool   `yaml:"load_optim"`
	LoadRNG                 bool   `yaml:"load_rng"`
	Finetune                bool   `yaml:"finetune"` // weights alone, from iteration 0
	ExitOnMissingCheckpoint bool   `yaml:"exit_on_missing_checkpoint"`
	SaveRouting             string `yaml:"save_routing"` // file of the routers' choices; below --out when relative
	LoadRouting             string `yaml:"load_routing"` // such a file, to be played
}

// Variant is one run of several that a file describes: a name and dotted overrides.
type Variant struct {
	Name string            `yaml:"name"`
	Set  map[string]string `yaml:"set"`
}

// Probe makes gradients exact fractions or losses a table, so that masks and denominators can be read off.
type Probe struct {
	BiasOnly bool // every weight is zero but a trainable output bias
	// TokenLoss replaces the cross entropy of a term (lm, mtp_1, …) by a table [rows][seq_length]; a term without a table
	// keeps its cross entropy. A table of micro_batch_size rows holds for every microbatch, one of global_batch_size rows
	// for the whole step: row r of microbatch j (counted over all replicas) is its row j·micro_batch_size + r. Several
	// terms may share a table: it is not to be changed.
	TokenLoss map[string][][]float64
}

// On reports whether a probe is set.
func (p *Probe) On() bool { return p.BiasOnly || p.TokenLoss != nil }

// Expect is one expectation.
type Expect struct {
	Quantity   string    `yaml:"quantity"`
	Step       *int      `yaml:"step"`       // default: the last
	Microbatch *int      `yaml:"microbatch"` // default: 0
	Row        *int      `yaml:"row"`
	Equals     *Values   `yaml:"equals"` // a number, a fraction "-13/48", or a list of them
	Close      *Values   `yaml:"close"`
	Tolerance  float64   `yaml:"tolerance"`
	Below      *float64  `yaml:"below"`
	Above      *float64  `yaml:"above"`
	Between    []float64 `yaml:"between"`
	Finite     bool      `yaml:"finite"`
	Refused    string    `yaml:"refused"`
	SameAs     string    `yaml:"same_as"`  // single_rank | without_faults | the file of a run's report; every quantity within tolerance
	Restarts   *int      `yaml:"restarts"` // of ranks, in the whole run
	Detected   bool      `yaml:"detected"` // the comparison with the oracle fails
	First      string    `yaml:"first"`    // with detected: the first quantity that differs
	Line       int       `yaml:"-"`
}

// Values is a number or a (nested, flattened row-major) list of numbers.
type Values struct {
	Scalar bool
	Data   []float64
}

// Words is a text or a list of them.
type Words []string

// Has reports whether a word is among them.
func (w Words) Has(word string) bool {
	for _, x := range w {
		if x == word {
			return true
		}
	}
	return false
}

// Numbers is a number or a list of them.
type Numbers []float64

// At is the i-th number; one number stands for all.
func (n Numbers) At(i int) float64 {
	switch {
	case len(n) == 0:
		return 0
	case len(n) == 1:
		return n[0]
	}
	return n[i]
}

// LayerFreq says which decoder layers are MoE.
type LayerFreq struct {
	Every   int   // n: layers 0, n, 2n, …
	Pattern []int // one 0/1 per layer
}

// IsMoE reports whether decoder layer i has experts. The zero value means every layer.
func (f LayerFreq) IsMoE(i int) bool {
	if f.Pattern != nil {
		return i < len(f.Pattern) && f.Pattern[i] != 0
	}
	return f.Every <= 1 || i%f.Every == 0
}
