package config

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// train holds the rules of train and scheduler, and the limits on a step.
func (c *checker) train() {
	s := c.s
	width := s.Model.width()
	sizes := []string{"train.micro_batch_size", "dataset.seq_length", "model.hidden_size", "model.ffn_hidden_size", "model.num_attention_heads", "model.kv_channels",
		"model.num_moe_experts", "model.moe_router_topk", "model.moe_ffn_hidden_size", "model.moe_shared_expert_intermediate_size"}
	if n := product(s.Train.MicroBatchSize, s.Dataset.SeqLength, width); n > MaxActivation {
		c.fail("train.micro_batch_size", fmt.Sprintf("%d rows of seq_length %d and width %d are %d elements in one activation, expected at most %d; reduce micro_batch_size or seq_length",
			s.Train.MicroBatchSize, s.Dataset.SeqLength, width, n, MaxActivation), sizes...)
	}
	if n := product(s.Train.GlobalBatchSize, s.Dataset.SeqLength); n > MaxStepTokens {
		c.fail("train.global_batch_size", fmt.Sprintf("%d rows of seq_length %d are %d tokens in one step, expected at most %d; reduce global_batch_size or seq_length",
			s.Train.GlobalBatchSize, s.Dataset.SeqLength, n, MaxStepTokens), sizes...)
	}
	if s.Train.EvalInterval == 0 && s.Train.EvalIters != 0 {
		c.note("train.eval_iters has no effect without eval_interval")
	}
	c.scheduler()
}

// runtime holds the rules of names, transport and checkpoint.
func (c *checker) runtime() {
	s := c.s
	c.name("name", s.Name)
	c.checkpoint()
	t := &s.Transport
	switch {
	case t.Kind == "direct" && t.URL != "":
		c.fail("transport.url", "kind direct uses no server; remove url, or use kind nats", "transport.kind")
	case t.Embedded != nil && *t.Embedded && t.URL != "":
		c.fail("transport.embedded", "true starts a server while url names one; remove one of the two")
	case t.Embedded != nil && !*t.Embedded && t.URL == "" && t.Kind == "nats":
		c.fail("transport.embedded", "false without url leaves no server; set transport.url, or embedded: true")
	}
	for part := range strings.SplitSeq(t.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(part))
		if t.URL != "" && (err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)) {
			c.fail("transport.url", fmt.Sprintf("found %s, expected nats://host:port (or tls, ws, wss), several with commas", show(part)))
		}
	}
	c.secrets()
}

// checkpoint holds the rules of what is saved and loaded.
func (c *checker) checkpoint() {
	k := &c.s.Checkpoint
	if k.SaveInterval > 0 && k.Save == "" {
		c.fail("checkpoint.save_interval", "has no folder to save to; set checkpoint.save")
	}
	if k.Save == "" {
		c.noEffect("without save", "checkpoint.most_recent_k", "checkpoint.save_optim")
	}
	if k.Load == "" {
		c.noEffect("without load", "checkpoint.ckpt_step", "checkpoint.load_optim", "checkpoint.load_rng", "checkpoint.finetune", "checkpoint.exit_on_missing_checkpoint")
	}
	if k.Finetune {
		c.noEffect("with finetune, which loads neither", "checkpoint.load_optim", "checkpoint.load_rng")
	}
}

// secrets holds the rules of the files that a server of somebody else asks for.
func (c *checker) secrets() {
	t := &c.s.Transport
	for _, f := range []struct{ key, path string }{
		{"transport.creds", t.Creds}, {"transport.nkey", t.NKey}, {"transport.tls_ca", t.TLSCA}, {"transport.tls_cert", t.TLSCert},
		{"transport.tls_key", t.TLSKey},
	} {
		switch {
		case f.path == "":
		case t.Kind == "direct":
			c.fail(f.key, "kind direct uses no server; remove it, or use kind nats with url", "transport.kind")
		case t.Embedded != nil && *t.Embedded:
			c.fail(f.key, "the embedded server asks for no credentials and no TLS; remove it, or name a server in url", "transport.embedded")
		case t.URL == "":
			c.fail(f.key, "goes with url, and there is none; set transport.url, or remove it", "transport.url")
		}
	}
	switch {
	case t.TLSCert != "" && t.TLSKey == "":
		c.fail("transport.tls_cert", "needs tls_key; set both or neither")
	case t.TLSKey != "" && t.TLSCert == "":
		c.fail("transport.tls_key", "needs tls_cert; set both or neither")
	case t.Creds != "" && t.NKey != "":
		c.fail("transport.nkey", "is given beside creds, which says who this is already; remove one of the two", "transport.creds")
	}
}

// name checks a name from which folders and subjects are made: parts between slashes, none empty or made of dots.
func (c *checker) name(key, name string) {
	parts := strings.Split(name, "/")
	switch {
	case slices.ContainsFunc(parts, func(p string) bool { return len(p) > MaxNameBytes }):
		c.fail(key, fmt.Sprintf("has %d bytes, expected at most %d between slashes", len(name), MaxNameBytes))
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }):
		c.fail(key, fmt.Sprintf("found %s, expected characters that print, and no backslash", quoteWord(name)))
	case slices.ContainsFunc(parts, func(p string) bool { return strings.Trim(p, ". ") == "" }):
		c.fail(key, fmt.Sprintf("found %s, expected a name whose parts between slashes are not empty or dots", quoteWord(name)))
	}
}

// noEffect notes keys that differ from their defaults and do nothing.
func (c *checker) noEffect(why string, keys ...string) {
	if c.base == nil {
		base := Defaults()
		c.base = &base
	}
	for _, key := range keys {
		v := lookup(c.s, key)
		unset := reflect.ValueOf(v).IsZero() && !c.given(key)
		if c.ok(key) && !unset && !reflect.DeepEqual(v, lookup(c.base, key)) {
			c.note("%s has no effect %s", key, why)
		}
	}
}
