package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"phalanx/config"
	"phalanx/data"
	"phalanx/telemetry"
)

// preprocessFlags say what is written and by which tokenizer.
type preprocessFlags struct {
	prefix, key, eod, json string
	decode                 bool
	tokenizer              config.Tokenizer
}

func (a *app) preprocessVerb() *cobra.Command {
	var f preprocessFlags
	c := &cobra.Command{
		Use:   "preprocess FILE…",
		Short: "writes texts as an indexed dataset (.bin and .idx), or one as texts",
		Long: "Writes the documents of JSONL files, one a line, and of text files, one a file, as Megatron's indexed dataset\n" +
			"PREFIX_KEY_document.bin and .idx, which dataset.kind: indexed reads. With --decode it prints such a dataset as JSONL.",
		RunE: func(c *cobra.Command, args []string) error { return a.preprocess(c.Context(), args, f) },
	}
	c.Flags().StringVar(&f.prefix, "output-prefix", "", "PREFIX of the files that are written")
	c.Flags().StringVar(&f.key, "json-key", "text", "key of a line's text")
	c.Flags().StringVar(&f.eod, "append-eod", "", "token, or id, behind every document; with --decode it is taken off")
	c.Flags().BoolVar(&f.decode, "decode", false, "print the dataset of a prefix as JSONL")
	c.Flags().StringVar(&f.tokenizer.Kind, "tokenizer-kind", "byte", "byte, huggingface or tiktoken")
	c.Flags().StringVar(&f.tokenizer.Model, "tokenizer-model", "", "tokenizer.json, or file of ranks")
	c.Flags().StringVar(&f.tokenizer.TiktokenPattern, "tiktoken-pattern", "", "gpt2, cl100k_base, o200k_base or qwen2")
	c.Flags().StringArrayVar(&f.tokenizer.TiktokenSpecialTokens, "tiktoken-special-token", nil, "NAME or NAME=ID; may be given several times")
	c.Flags().StringVar(&f.json, "json", "", "file for the result; - is standard output")
	return c
}

func (a *app) preprocess(ctx context.Context, args []string, f preprocessFlags) error {
	switch {
	case len(args) == 0:
		return usagef("phalanx preprocess: found no file, expected FILE.jsonl or FILE.txt, or PREFIX with --decode")
	case f.decode && len(args) > 1:
		return usagef("phalanx preprocess --decode: found %d prefixes (%s), expected one", len(args), list(args))
	case f.decode && f.json != "":
		return usagef("phalanx preprocess --decode: found --json, expected no such flag: the documents are printed")
	case !f.decode && f.prefix == "":
		return usagef("phalanx preprocess: found no --output-prefix, expected one, as in --output-prefix out/corpus")
	}
	tok, err := data.NewTokenizer(f.tokenizer, ".")
	if err != nil {
		return err
	}
	if f.decode {
		return data.WriteJSONL(ctx, a.stdout, args[0], f.key, tok, f.eod)
	}
	p, err := data.Preprocess(ctx, data.Preprocessing{Inputs: args, Prefix: f.prefix, Key: f.key, Tokenizer: tok, EOD: f.eod})
	if err != nil {
		return err
	}
	j, err := telemetry.OpenJSON(f.json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	if f.json != "-" {
		a.printf("%s.bin and .idx: %s, %d tokens of %s; left out as empty: %d\n", p.Prefix, plural(p.Documents, "document"), p.Tokens, p.Kind, p.Skipped)
	}
	return errors.Join(j.Write(p), j.Close())
}
