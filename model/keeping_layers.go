package model

// scoreRows is the number of queries whose scores exist at once, for each key head and row of the batch.
const scoreRows = 64

// heads are the query and key heads of this rank and the features of all of them.
func (k *keeping) heads() (q, kv, qd, kvd int) {
	q, kv = k.m.NumAttentionHeads/k.sizes.TP, k.m.NumQueryGroups/k.sizes.TP
	return q, kv, q * k.m.KVChannels, kv * k.m.KVChannels
}

// scores are one block of attention: the queries of a rank against the keys of one.
func (k *keeping) scores(kv, tiles int) { k.take(k.b * kv * tiles * scoreRows * k.l) }

func (k *keeping) attention() {
	q, kv, qd, kvd := k.heads()
	k.column(k.h, qd+2*kvd)
	if k.m.QKLayernorm {
		k.take(k.all * (qd + 2*kvd + q + kv))
		k.gain(2 * k.m.KVChannels)
	}
	cp := k.sizes.CP
	switch {
	case cp == 1:
	case k.m.CPCommType == "all_gather":
		k.take((1 + cp) * k.all * 2 * kvd)
	case k.m.CPCommType == "a2a":
		k.exchanged(qd + 2*kvd)
		k.exchanged(qd)
		kv /= cp
		k.scores(kv, cp*(cp-1)) // cp sources of queries with cp of keys each; the rest is below
	default:
		k.take(cp * k.all * 2 * kvd)
	}
	k.take(k.all * (qd + 3*q))
	k.scores(kv, cp)
	k.row(k.h)
}

func (k *keeping) attentionGrad() {
	q, kv, qd, kvd := k.heads()
	k.rowGrad(qd, k.h)
	cp := k.sizes.CP
	switch {
	case cp == 1:
	case k.m.CPCommType == "all_gather":
		k.take((2 + 2*cp) * k.all * 2 * kvd)
	case k.m.CPCommType == "a2a":
		k.exchanged(qd)
		k.exchanged(qd + 2*kvd)
		kv /= cp
		k.scores(kv, 2*cp*(cp-1))
	default:
		k.take((2*cp + 1) * k.all * 2 * kvd)
	}
	k.take(k.all * (qd + 2*kvd + q))
	k.scores(kv, 2*cp)
	if k.m.QKLayernorm {
		k.gain(2 * k.m.KVChannels)
	}
	k.columnGrad(k.h)
}

// exchanged are features traded for slots over context parallelism, or back.
func (k *keeping) exchanged(cols int) {
	cp := k.sizes.CP
	k.take(2*k.all*cols + 2*(cp-1)*k.all*(cols/cp))
}

func (k *keeping) width(f int) int {
	if k.m.GatedLinearUnit {
		return 2 * f
	}
	return f
}

func (k *keeping) ffn(moe bool) {
	if moe {
		k.experts()
		return
	}
	k.mlp(k.m.FFNHiddenSize / k.sizes.TP)
}

func (k *keeping) ffnGrad(moe bool) {
	if moe {
		k.expertsGrad()
		return
	}
	k.mlpGrad(k.m.FFNHiddenSize / k.sizes.TP)
}

func (k *keeping) mlp(f int) {
	k.column(k.h, k.width(f))
	k.take(k.all * f)
	k.row(k.h)
}

func (k *keeping) mlpGrad(f int) {
	k.rowGrad(f, k.h)
	k.take(k.all * k.width(f))
	k.columnGrad(k.h)
}

// load is what a rank of g gets and gives in a mixture of experts, with tokens spread evenly: entries are pairs of a row
// and one of its experts, items are rows on their way to one member.
type load struct{ g, items, entries, each, most int }

func (k *keeping) load() load {
	ep, etp, topk := max(k.sizes.EP, 1), max(k.sizes.ETP, 1), k.m.MoERouterTopK
	l := load{g: ep * etp, each: k.rows * topk / ep}
	if factor := k.m.MoEExpertCapacityFactor; factor > 0 && (factor < 1 || k.m.MoEPadExpertInput) {
		l.each = int(float64(l.each) * factor)
	}
	l.entries = l.each * l.g
	l.most = l.entries * ep / max(k.m.NumMoEExperts, 1)
	switch k.m.MoETokenDispatcher {
	case "alltoall":
		l.items = l.each
	case "flex":
		missed := 1.0 // share of rows without an expert on a member
		for i := range topk {
			missed *= max(0, 1-float64(k.m.NumMoEExperts/ep)/float64(k.m.NumMoEExperts-i))
		}
		l.items = int(float64(k.rows) * (1 - missed))
	default:
		l.items = k.rows
	}
	return l
}

// sent are rows, and numbers of entries, to all other members and from them.
func (k *keeping) sent(l load, numbers int) { k.take(2 * (l.g - 1) * (l.items*k.h + numbers*l.each)) }

// given back are results of other members' rows and of the rank's own, and what comes for its rows.
func (k *keeping) givenBack(l load, numbers int) {
	if l.g > 1 {
		k.take((2*l.g - 1) * (l.items*k.h + numbers*l.each))
	}
}

func (k *keeping) experts() {
	l, f := k.load(), k.m.MoEFFNHiddenSize/max(k.sizes.ETP, 1)
	if k.m.MoEInputJitterEps > 0 {
		k.take(2 * k.rows * k.h)
	}
	k.take(k.rows * (k.m.NumMoEExperts + k.m.MoERouterTopK))
	k.sent(l, 1)
	k.add()
	k.givenBack(l, 0)
	k.take(l.entries * (k.width(f) + f))
	before := k.now
	k.take(2 * l.most * k.h)
	k.now = before
	if k.m.MoESharedExpertSize == 0 {
		return
	}
	k.mlp(k.m.MoESharedExpertSize / k.sizes.TP)
	if k.m.MoESharedExpertGate {
		k.take(k.rows + k.rows*k.h)
	}
}

func (k *keeping) expertsGrad() {
	l, f := k.load(), k.m.MoEFFNHiddenSize/max(k.sizes.ETP, 1)
	k.sent(l, 0)
	k.take(k.rows*k.h + k.rows*k.m.MoERouterTopK)
	k.givenBack(l, 1)
	before := k.now
	k.take(l.most * (2*k.h + f + k.width(f)))
	k.now = before
	k.take(k.rows * (k.m.NumMoEExperts + k.h))
	if k.m.MoESharedExpertSize == 0 {
		return
	}
	if k.m.MoESharedExpertGate {
		k.take(2*k.rows*k.h + k.rows)
	}
	k.mlpGrad(k.m.MoESharedExpertSize / k.sizes.TP)
}
