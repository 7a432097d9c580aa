package config

// Limits of a scenario. They keep every later product of sizes inside int64 and stop a typing error (a length in bytes,
// a batch in tokens) before it asks for memory no host of this trainer has.
const (
	// MaxFileBytes bounds a scenario file: people write it, and token data of any size belongs in a jsonl file.
	MaxFileBytes = 1 << 20
	// MaxNodes bounds a document after its aliases are written out, so that nested aliases cannot multiply without end.
	// A value takes two bytes at least: no file without aliases has more.
	MaxNodes = MaxFileBytes / 2
	// MaxDepth bounds nesting: the deepest legal value (variants, set, a list of values) needs about ten levels.
	MaxDepth = 64
	// MaxProblems bounds a report: nobody reads more, and a wrong row length repeats for every token.
	MaxProblems = 500
	// MaxNameBytes bounds each part of a name between slashes: run directories are made from them.
	MaxNameBytes = 100
	// MaxVariants bounds the runs of one file, each of which is a whole training run.
	MaxVariants = 256

	// MaxLayers: ten times the deepest published decoder; a layer index is 16 bits in the message header.
	MaxLayers = 1024
	// MaxMTPDepths: published models use 1 to 4; every depth costs a layer and a loss.
	MaxMTPDepths = 64
	// MaxHidden: four times the widest published hidden size; also bounds feed-forward widths divided by 16.
	MaxHidden = 1 << 16
	// MaxFFN: sixteen times MaxHidden, the widest ratio in use.
	MaxFFN = 16 * MaxHidden
	// MaxHeads: one head of 64 channels at MaxHidden.
	MaxHeads = 1024
	// MaxExperts: twice the largest published expert count, rounded up to keep counts in 16 bits.
	MaxExperts = 4096
	// MaxVocab: four times the largest vocabulary in use.
	MaxVocab = 1 << 20
	// MaxSeqLength: attention without a GPU grows with its square; 131072 tokens already take hours a layer.
	MaxSeqLength = 1 << 17
	// MaxPackingWindow bounds a window of best fit: the time for a document grows with it.
	MaxPackingWindow = 1 << 14
	// MaxWorld: ranks are 16 bits in the message header, and one rank is one core at least.
	MaxWorld = 4096
	// MaxMicroBatch and MaxGlobalBatch bound rows; microbatch indices are 16 bits in the message header.
	MaxMicroBatch   = 1 << 16
	MaxGlobalBatch  = 1 << 24
	MaxMicrobatches = 1<<16 - 1
	// MaxIterations: steps are 32 bits in the message header.
	MaxIterations = 1<<31 - 1
	// MaxSamples: whole numbers up to here are exact in a float64.
	MaxSamples = 1 << 52
	// MinBucket and MaxBucket bound a gradient bucket: an element, and what 32 bits in the message header count, with room.
	MinBucket = 1
	MaxBucket = 1 << 30
	// MaxParameters: weights, gradients and two moments of so many take 64 GiB in fp32, more than one host should give.
	MaxParameters = 1 << 32
	// MaxActivation bounds the elements of one activation of a microbatch: 8 GiB in fp32.
	MaxActivation = 1 << 31
	// MaxStepTokens bounds tokens per optimizer step, so that counts stay exact in every float they meet.
	MaxStepTokens = 1 << 31
	// MaxThreads: more compute threads than any host has cores.
	MaxThreads = 1024
	// MinPieceBytes and MaxPieceBytes bound a piece of a tensor on the wire: below, headers outweigh data; above, piece
	// and headers no longer fit the broker's default payload of 1 MiB.
	MinPieceBytes = 1024
	MaxPieceBytes = 1<<20 - 4096
	// MaxTimeoutS is a day: waiting longer is waiting for ever.
	MaxTimeoutS = 86400
	// MaxRestarts bounds what is expected or allowed of restarts.
	MaxRestarts = 1_000_000
	// MaxFaults bounds the failures of a scenario, MaxPassages how often a point is passed before one.
	MaxFaults   = 1000
	MaxPassages = 1_000_000_000
	// MaxLogBytes bounds a budget of a sender log: a TiB is more than a host has.
	MaxLogBytes = 1 << 40
	// MinHeartbeatMs and MaxHeartbeatMs: more often says nothing but costs, more rarely finds nothing.
	MinHeartbeatMs = 10
	MaxHeartbeatMs = 10_000
)
