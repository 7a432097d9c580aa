package model

import (
	"fmt"

	"phalanx/config"
	"phalanx/config/mutation"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/moe"
	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/train"
)

// Source gives microbatches: a pure function of its arguments.
type Source interface {
	// Microbatch is microbatch j of the whole step, 0 ≤ j < global_batch_size/micro_batch_size.
	Microbatch(step, j int) *nn.Microbatch
}

// Env is what a rank needs from outside. Every function is called from the rank's own turn.
type Env struct {
	Scenario   *config.Scenario
	Rank       int
	Train      Source
	Validation Source // nil: no validation
	Emit       func(messages.Event)
	Observer   nn.Observer // nil: nobody looks
	// Initial gives whole weights by name in place of the initial distribution; nil: initialise all.
	Initial func(name string) ([]float64, error)
	Replay  *moe.Replay // of the routers' choices; nil: every router chooses
	// Resume is where the run goes on in place of beginning; nil: it begins. It wins over Initial.
	Resume *Resume
	// Boundary is called before every step and after the last one. local is the rank's whole state at this point, as bytes;
	// a rank that begins with them in Local goes on from there with the same bits.
	Boundary func(step int, local func() []byte)
	Local    []byte // wins over Resume; nil: none
	// Point is told of points that the programs pass in training, before what they are named after: layer.0.forward,
	// mtp.1.backward, grad-reduce, and mid-optimizer when half of the parameters have moved. step is 0-based, microbatch the
	// rank's own, −1 of none. It may panic. nil: nobody looks.
	Point func(point string, step, microbatch int)
	// Save takes this rank's share of a checkpoint and returns its part of the table of contents, once it is durable. nil:
	// there are no checkpoints.
	Save func(Snapshot) (part []byte, err error)
	// Stop says at the boundary before a step whether the run ends without it, the same on every rank. It may let the stage program
	// wait, by c. nil: it never does.
	Stop func(c nn.Comm, step int) bool
	// Shards is shown this rank's parameters: "grads" after reduction and before clipping of each step if an observer
	// is set, "weights" after the last step.
	Shards func(what string, step int, shards []ShardView)
}

// ShardView is one parameter's shard. Values are the rank's own memory: read, copy, do not keep.
type ShardView struct {
	Spec   *nn.Spec
	F32    []float32
	F64    []float64
	TPRank int
	DPRank int
}

// Rank is everything one rank holds.
type Rank[T tensor.Float] struct {
	env         Env
	cfg         *config.Model
	params      *nn.Params[T]
	tables      tables[T]
	embed       nn.Embedding[T]
	layers      []*nn.Block[T] // nil: on another pipeline stage
	norm        nn.Norm[T]
	depths      []*mtp.Depth[T] // nil: on another pipeline stage
	chunks      []*chunk[T]     // of this rank, in virtual order
	layout      mesh.Layout
	holders     holders
	grads       *train.Grads[T]
	adam        *train.Adam[T]
	rates       train.Scheduler
	mut         mutation.Set
	routers     []*moe.Router[T] // every router once, in build order
	probe       probe[T]
	notFinite   map[int]bool // microbatches of the step whose loss is not a number
	arenas      arenas[T]    // of the stage program
	depthArenas []arenas[T]  // of the depths' programs, by depth
	position    train.Position
	saved       int // iteration of the last checkpoint, or the one that the run began with
}

// Programs are the straight-line programs of one rank: index 0 is the stage, k is MTP depth k, nil if that runs on another
// pipeline stage.
func Programs(env Env) ([]func(nn.Comm), error) {
	if env.Scenario.Train.DType == "fp64" {
		return programs[float64](env)
	}
	return programs[float32](env)
}

func programs[T tensor.Float](env Env) ([]func(nn.Comm), error) {
	r, err := NewRank[T](env)
	if err != nil {
		return nil, err
	}
	return r.programs(), nil
}

func (r *Rank[T]) programs() []func(nn.Comm) {
	ps := []func(nn.Comm){r.stage}
	for k, d := range r.depths {
		if d == nil {
			ps = append(ps, nil)
			continue
		}
		ps = append(ps, func(c nn.Comm) { r.depth(c, k+1) })
	}
	if r.overlaps() {
		for len(ps) < int(nn.Reducer) {
			ps = append(ps, nil)
		}
		ps = append(ps, r.reducer)
	}
	return ps
}

// NewRank declares, lays out and initialises the parameters of a rank.
func NewRank[T tensor.Float](env Env) (*Rank[T], error) {
	s := env.Scenario
	mut, err := mutation.Parse(s.Mutate)
	if err != nil {
		return nil, err
	}
	if mut.Has(mutation.UnpaddedBoundaries) && s.Model.ContextParallel > 1 {
		return nil, &RefusedError{"mutation unpadded_boundaries cuts documents where no context-parallel rank has a chunk; legal with context_parallel_size 1"}
	}
	layout, err := s.Model.PipelineLayout()
	if err != nil {
		return nil, err
	}
	r, b, err := declared[T](env, layout)
	if err != nil {
		return nil, err
	}
	r.mut = mut
	for _, router := range r.routers {
		router.Replay = env.Replay
	}
	b.params.Build()
	for _, f := range b.build {
		f()
	}
	for k, d := range r.depths {
		if d != nil && !r.cfg.MTPDetachHeads {
			if r.cfg.MTPUseRepeatedLayer {
				k = 0
			}
			d.EmbedGrad = r.tables.grads(depthUse(k + 1))
		}
	}
	r.grads = train.NewGrads(b.params, train.Layout{Sizes: s.Sizes(), Rank: env.Rank, Sharded: s.Optimizer.UseDistributedOptimizer,
		Bucket: s.DDP.BucketSize, BF16: s.DDP.BF16(), LayerOf: r.layerOf()})
	r.adam = train.NewAdam(s.Optimizer, r.grads)
	r.rates = train.NewScheduler(s.Optimizer, s.Scheduler, s.Train)
	if err := r.initialise(); err != nil {
		return nil, err
	}
	r.startProbe()
	return r, nil
}

// declared is a rank whose parameters have names and shapes and no memory yet.
func declared[T tensor.Float](env Env, layout mesh.Layout) (*Rank[T], *builder[T], error) {
	s := env.Scenario
	b := newBuilder[T](s, env.Rank)
	r := &Rank[T]{env: env, cfg: &s.Model, params: b.params, notFinite: map[int]bool{}, layout: layout,
		chunks: chunksOf[T](layout, b.stage), holders: holdersOf(layout, s.Model.MTPNumLayers), depthArenas: make([]arenas[T], s.Model.MTPNumLayers)}
	r.declare(b)
	if b.err != nil {
		return nil, nil, b.err
	}
	r.routers = b.routers
	r.declareProbe(b)
	return r, b, nil
}

// declare declares the whole model in one order on every rank. What lies on other pipeline stages is known by name.
func (r *Rank[T]) declare(b *builder[T]) {
	r.tables = b.tables(r.holders)
	r.embed = nn.Embedding[T]{Table: r.tables.embed.param, Positions: r.tables.positions.param, Dropout: b.dropout(r.cfg.HiddenDropout)}
	at := stagesOf(r.layout)
	for i := range r.cfg.NumLayers {
		b.on(at[i])
		block := b.block(fmt.Sprintf("model.layers.%d.", i), "", r.isMoE(i))
		if b.foreign {
			block = nil
		}
		r.layers = append(r.layers, block)
	}
	b.on(at[r.cfg.NumLayers-1])
	r.norm = b.norm("model.norm.weight", "")
	for k := range r.cfg.MTPNumLayers {
		b.on(r.holders.depths[k])
		d := r.declareDepth(b, k)
		if b.foreign {
			d = nil
		}
		r.depths = append(r.depths, d)
	}
	b.on(r.holders.loss)
}

// RefusedError is a combination that cannot be built.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

// WeightError is a given weight that does not fit the model.
type WeightError struct {
	Name  string
	Found int // elements
	Shape []int
}

func (e *WeightError) Error() string {
	return fmt.Sprintf("weight %s has %d elements, expected shape %v as the scenario's model has it", e.Name, e.Found, e.Shape)
}

// declareDepth declares depth k+1. A repeated layer has one set of parameters, of the first depth.
func (r *Rank[T]) declareDepth(b *builder[T], k int) *mtp.Depth[T] {
	var d *mtp.Depth[T]
	if k > 0 && r.cfg.MTPUseRepeatedLayer {
		d = &mtp.Depth[T]{}
		b.later(func() { *d = *r.depths[0]; d.K = k + 1 })
	} else {
		d = b.depth(k)
	}
	d.K, d.Embedding = k+1, r.embed
	return d
}

func (r *Rank[T]) isMoE(layer int) bool {
	return r.cfg.NumMoEExperts > 0 && r.cfg.MoELayerFreq.IsMoE(layer)
}

func (r *Rank[T]) initialise() error {
	if r.env.Local != nil {
		return r.takeLocal(r.env.Local)
	}
	if r.env.Resume != nil {
		return r.restore(r.env.Resume)
	}
	for _, p := range r.params.List {
		if r.env.Initial == nil {
			nn.Fill(p, r.env.Scenario.RNG.Seed)
			continue
		}
		whole, err := r.given(p.Name, p.Shape, p.Elements())
		if err != nil {
			return err
		}
		nn.FromWhole(p, whole)
	}
	for _, router := range r.routers {
		if b := router.Bias; b != nil && r.env.Initial != nil {
			whole, err := r.given(b.Name, []int{len(b.Values)}, len(b.Values))
			if err != nil {
				return err
			}
			for i, v := range whole {
				b.Values[i] = T(v)
			}
		}
	}
	return nil
}

// given is a weight that comes from outside.
func (r *Rank[T]) given(name string, shape []int, elements int) ([]float64, error) {
	whole, err := r.env.Initial(name)
	if err == nil && len(whole) != elements {
		err = &WeightError{Name: name, Found: len(whole), Shape: shape}
	}
	return whole, err
}

// showShards hands weights or gradients out.
func (r *Rank[T]) showShards(c nn.Comm, what string, step int, of func(*nn.Param[T]) []T) {
	if r.env.Shards == nil {
		return
	}
	views := make([]ShardView, 0, len(r.params.List))
	for _, p := range r.params.List {
		views = append(views, r.shardView(&p.Spec, of(p)))
	}
	for _, router := range r.routers {
		if b := router.Bias; b != nil && what == "weights" {
			views = append(views, r.shardView(&nn.Spec{Name: b.Name, Shape: []int{len(b.Values)}, Shard: nn.Unsharded}, b.Values))
		}
	}
	r.env.Shards(what, step, views)
}

func (r *Rank[T]) shardView(spec *nn.Spec, x []T) ShardView {
	coord := r.env.Scenario.Sizes().Coord(r.env.Rank)
	v := ShardView{Spec: spec, TPRank: coord.TP, DPRank: coord.DP}
	switch x := any(x).(type) {
	case []float32:
		v.F32 = x
	case []float64:
		v.F64 = x
	}
	return v
}
