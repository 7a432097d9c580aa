package model

import "phalanx/nn"

// point tells that a layer or depth begins a pass of a microbatch in training.
func (r *Rank[T]) point(ctx *nn.Ctx[T], pass string) {
	if r.env.Point != nil && ctx.Site.Phase != nn.Eval {
		r.env.Point(ctx.Scope+"."+pass, ctx.Site.Step, ctx.Site.Microbatch)
	}
}

// pointOf tells of a point between the microbatches and the end of a step.
func (r *Rank[T]) pointOf(name string, step int) {
	if r.env.Point != nil {
		r.env.Point(name, step, -1)
	}
}
