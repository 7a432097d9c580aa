package config

// trainKeys are the keys of train, optimizer and scheduler.
var trainKeys = []spec{
	{key: "train.train_iters", def: required, in: between(1, MaxIterations), doc: "Optimizer steps."},
	{key: "train.micro_batch_size", def: required, in: between(1, MaxMicroBatch), doc: "Rows that one data-parallel rank computes at a time."},
	{key: "train.global_batch_size", from: []string{"train.micro_batch_size", "dist.world_size", "model.tensor_model_parallel_size",
		"model.context_parallel_size", "model.pipeline_model_parallel_size"},
		def: "= micro_batch_size · data-parallel size", in: between(1, MaxGlobalBatch), null: true,
		doc: "Rows per optimizer step."},
	{key: "train.dtype", def: "fp32", legal: []string{"fp32", "fp64", "bf16", "fp16"}, doc: "Element type of weights and activations."},
	{key: "train.eval_interval", def: "0", in: between(0, MaxIterations), null: true, doc: "Steps between evaluations; 0: never."},
	{key: "train.eval_iters", def: "= 100 when eval_interval > 0, else 0", in: between(0, MaxIterations), doc: "Global batches per evaluation."},
	{key: "train.threads", def: "0", in: between(0, MaxThreads), doc: "Compute threads of a process; 0: one per core. Changes no bit."},
	{key: "train.check_for_nan_in_loss", def: "false", doc: "A loss that is not finite ends the run, with rank, step and microbatch."},
	{key: "train.skip_nan_microbatches", def: "false",
		doc: "A microbatch whose loss is not finite is dropped from losses, counts and gradients instead of ending in NaN weights."},
	{key: "train.skip_nan_steps", def: "false",
		doc: "A step whose gradient is not finite is skipped on all ranks: no update, no advance of the schedules, counted as skipped."},

	{key: "optimizer.optimizer", def: "adam", legal: []string{"adam", "sgd", "lion", "muon", "dist_muon"},
		doc: "Adam with decoupled weight decay (AdamW)."},
	{key: "optimizer.lr", def: required, in: atLeast(0), doc: "Greatest learning rate."},
	{key: "optimizer.min_lr", def: "0", in: atLeast(0), null: true, doc: "Learning rate at the end of the decay."},
	{key: "optimizer.weight_decay", def: "0.01", in: atLeast(0), doc: "Decoupled decay of weights with two or more dimensions."},
	{key: "optimizer.adam_beta1", def: "0.9", in: share(), doc: "Decay of the first moment."},
	{key: "optimizer.adam_beta2", def: "0.999", in: share(), doc: "Decay of the second moment."},
	{key: "optimizer.adam_eps", def: "1e-8", in: above(0), doc: "Added to the root of the second moment."},
	{key: "optimizer.clip_grad", def: "1", in: atLeast(0), doc: "Greatest gradient norm; 0: no clipping."},
	{key: "optimizer.decoupled_lr", def: "= lr", in: atLeast(0), null: true, doc: "Greatest learning rate of the embedding and the output layer."},
	{key: "optimizer.decoupled_min_lr", def: "= min_lr", in: atLeast(0), null: true, doc: "With decoupled_lr: its rate at the end of the decay."},
	{key: "optimizer.apply_wd_to_qk_layernorm", def: "false", doc: "Weight decay applies to the gains of query and key norms too."},
	{key: "optimizer.use_distributed_optimizer", def: "= that of ddp",
		doc: "Data- and context-parallel ranks share the optimizer's state and each updates its slice (ZeRO 1). The same weights."},

	{key: "scheduler.lr_decay_style", def: "= linear, constant without a scheduler section",
		legal: []string{"constant", "linear", "cosine", "inverse-square-root", "WSD"}, doc: "Shape of the learning rate after warm-up."},
	{key: "scheduler.lr_decay_iters", from: []string{"train.train_iters"}, def: "= train_iters", in: between(1, MaxIterations), null: true,
		doc: "Step at which the decay ends."},
	{key: "scheduler.lr_warmup_iters", def: "0", in: between(0, MaxIterations), doc: "Steps of linear warm-up."},
	{key: "scheduler.lr_warmup_init", def: "0", in: atLeast(0), doc: "Learning rate at the start of the warm-up."},
	{key: "scheduler.lr_wsd_decay_iters", def: "0", in: between(0, MaxIterations), null: true, doc: "WSD: steps of the final decay."},
	{key: "scheduler.lr_wsd_decay_style", def: "exponential", legal: []string{"exponential", "linear", "cosine", "minus_sqrt"},
		doc: "WSD: shape of the final decay."},
	{key: "scheduler.lr_decay_samples", def: "0", in: between(0, MaxSamples), null: true, doc: "Sample at which the decay ends, in place of lr_decay_iters."},
	{key: "scheduler.lr_warmup_samples", def: "0", in: between(0, MaxSamples), doc: "Samples of linear warm-up, in place of lr_warmup_iters."},
	{key: "scheduler.lr_warmup_fraction", in: between(0, 1), null: true, doc: "Warm-up as a share of the decay, in place of lr_warmup_iters."},
	{key: "scheduler.lr_wsd_decay_samples", def: "0", in: between(0, MaxSamples), null: true, doc: "WSD: samples of the final decay, in place of lr_wsd_decay_iters."},
	{key: "scheduler.start_weight_decay", def: "= weight_decay", in: atLeast(0), null: true, doc: "Weight decay of the first step."},
	{key: "scheduler.end_weight_decay", def: "= weight_decay", in: atLeast(0), null: true, doc: "Weight decay after train_iters steps."},
	{key: "scheduler.weight_decay_incr_style", def: "constant", legal: []string{"constant", "linear", "cosine"},
		doc: "Shape of the weight decay from start_weight_decay to end_weight_decay."},

	{key: "ddp.use_distributed_optimizer", def: "= that of optimizer", doc: "As optimizer.use_distributed_optimizer: either is enough."},
	{key: "ddp.grad_reduce_in_fp32", def: "= true", null: true,
		doc: "false: gradients are rounded to bf16 for the reduction over data- and context-parallel ranks, and added in fp32."},
	{key: "ddp.bucket_size", def: "= 4194304", in: between(MinBucket, MaxBucket), null: true, doc: "Gradient elements that are reduced in one exchange. Changes no bit."},
	{key: "ddp.check_for_nan_in_grad", def: "false", doc: "A gradient that is not finite before its reduction ends the run, with rank, step and parameter."},
}

// runKeys are the keys outside sections and those of rng, dist, transport, recovery, logger, checkpoint and variants.
var runKeys = []spec{
	{key: "name", def: "= the file's name", doc: "Names the run in reports and folders."},
	{key: "about", doc: "One or two sentences for readers."},
	{key: "rng.seed", def: "1234", doc: "Seed of every random choice."},
	{key: "dist.world_size", from: []string{"model.tensor_model_parallel_size", "model.context_parallel_size", "model.pipeline_model_parallel_size"},
		def: "= tensor · context · pipeline parallel size", in: between(1, MaxWorld), null: true,
		doc: "Ranks; what is left after model parallelism is data parallel."},

	{key: "transport.kind", def: "nats", legal: []string{"nats", "direct"}, doc: "Carries messages between ranks."},
	{key: "transport.embedded", def: "= true without url", null: true, doc: "Start a NATS server in this process."},
	{key: "transport.url", doc: "A running NATS server, or several with commas."},
	{key: "transport.colocated", def: "nats", legal: []string{"nats", "direct"},
		doc: "Between ranks of one process: nats, or direct (handed over in memory)."},
	{key: "transport.piece_bytes", def: "262144", in: between(MinPieceBytes, MaxPieceBytes), doc: "Largest piece of a tensor in one message."},
	{key: "transport.creds", null: true, doc: "With url: NATS credentials file. Relative to the scenario's folder, as are the next four."},
	{key: "transport.nkey", null: true, doc: "With url: file with the seed of a NATS user key."},
	{key: "transport.tls_ca", null: true, doc: "With url: certificates that sign the server's."},
	{key: "transport.tls_cert", null: true, doc: "With url: certificate of this client; needs tls_key."},
	{key: "transport.tls_key", null: true, doc: "With url: key of tls_cert."},

	{key: "recovery.collective_timeout_s", def: "5", in: &bounds{high: MaxTimeoutS, lowOpen: true},
		doc: "Seconds with every rank waiting and none moving before the run ends and says who waits for whom."},

	{key: "logger.log_interval", def: "1", in: between(1, MaxIterations), doc: "Steps between iteration lines."},
	{key: "logger.token_loss_report", def: "false", doc: "Per depth: loss, mass on padding, percentiles over tokens."},
	{key: "logger.mask_report", def: "false", doc: "Per depth: rows of the padding mask, valid tokens at the router."},

	{key: "checkpoint.save", null: true, doc: "Folder for weights; below --out when relative."},
	{key: "checkpoint.save_interval", def: "0", in: between(0, MaxIterations), null: true, doc: "Steps between checkpoints; 0: at the end only."},
	{key: "checkpoint.load", null: true, doc: "safetensors file or folder with weights under Hugging Face names."},

	{key: "checkpoint.save_routing", null: true, doc: "File for the choices of all routers in training, with model.moe_enable_routing_replay; below --out when relative."},
	{key: "checkpoint.load_routing", null: true, doc: "Such a file: routers make its choices, with model.moe_enable_routing_replay."},

	{key: "variants", doc: "Runs of this file: each is the file with its own settings."},
	{key: "variants.*.name", def: required, doc: "Names the variant; unique in the file."},
	{key: "variants.*.set", doc: "Dotted keys and their values, as overrides on the command line."},

	{key: "mutate", legal: allMutations(), null: true, single: true, what: "planted bug",
		doc: "Planted bugs: each makes the trainer wrong in one public way, to see what it looks like and whether an expectation catches it."},
	{key: "probe", null: true, doc: "bias_only: every weight is zero but a trainable output bias, so that gradients are exact fractions; " +
		"{token_loss: TABLE} or {token_loss: {lm: TABLE, mtp_1: TABLE}}: rows of losses by position in place of the cross entropy, " +
		"micro_batch_size rows for every microbatch or global_batch_size rows for the step."},
}

// expectKeys are the keys of an expectation.
var expectKeys = []spec{
	{key: "expect", doc: "What must hold, else the run exits with 3."},
	{key: "expect.*.quantity", doc: "Dotted name of an observable, with an index as in probe.lm.grad_bias[2] or without; phalanx run --list-quantities prints them."},
	{key: "expect.*.step", def: "= the last", in: between(1, MaxIterations), null: true, doc: "Step at which the quantity is read."},
	{key: "expect.*.microbatch", def: "= 0", in: between(0, MaxMicrobatches), null: true, doc: "Microbatch at which the quantity is read."},
	{key: "expect.*.row", in: between(0, MaxMicroBatch), null: true, doc: "Row of the quantity."},
	{key: "expect.*.equals", null: true, doc: "The quantity is this number, fraction (-13/48) or list."},
	{key: "expect.*.close", null: true, doc: "The quantity is this within tolerance."},
	{key: "expect.*.tolerance", def: "= 1e-9 with close; with same_as 1e-9 in fp64, else 1e-4", in: atLeast(0),
		doc: "Greatest error for close and same_as; 0 with same_as: the same bits."},
	{key: "expect.*.below", null: true, doc: "The quantity is less than this."},
	{key: "expect.*.above", null: true, doc: "The quantity is more than this."},
	{key: "expect.*.between", doc: "The quantity is in [low, high]."},
	{key: "expect.*.finite", def: "false", doc: "The quantity has no NaN or infinity; without a quantity: every loss, norm and weight of the run."},
	{key: "expect.*.refused", doc: "The scenario is refused with a problem that contains this text."},
	{key: "expect.*.same_as", null: true, doc: "Every quantity of the run is that of single_rank (the run on one rank, without mutate) or of the file of a run's report."},
	{key: "expect.*.detected", def: "false", doc: "The comparison with the single-rank oracle fails, so that the bugs of mutate are seen."},
	{key: "expect.*.first", null: true, doc: "With detected: the first quantity that differs."},
}
