package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"phalanx/convert"
	"phalanx/telemetry"
)

// convertFlags say what to make of a model.
type convertFlags struct {
	convert.Options
	shard string
	json  string
}

func (a *app) convertVerb() *cobra.Command {
	var f convertFlags
	c := &cobra.Command{
		Use:   "convert FROM TO",
		Short: "turns a Hugging Face folder into a checkpoint, or a checkpoint into a Hugging Face folder",
		Long: "Converts FROM into the new folder TO. A folder of Hugging Face (" + list(convert.Architectures()) + ") or a reference case becomes a\n" +
			"checkpoint with a scenario.yaml that loads it; a checkpoint becomes config.json, shards and their index. Tensors are streamed. `convert megatron-args` is `megatron-args`.",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return a.convert(c.Context(), args, f) },
	}
	c.AddCommand(a.megatronArgsVerb())
	c.Flags().StringVar(&f.DType, "dtype", "", "element type to write: fp32, bf16 or fp64; default fp32 for a checkpoint, as stored for Hugging Face")
	c.Flags().BoolVar(&f.DropMTP, "drop-mtp", false, "leave all MTP layers out, and print their tensors")
	c.Flags().StringVar(&f.shard, "max-shard-size", "5GB", "largest shard of a Hugging Face folder: bytes, or with KB, MB, GB, KiB, MiB or GiB")
	c.Flags().StringVar(&f.Architecture, "architecture", "", "model_type to write; default the first that is this model")
	c.Flags().BoolVar(&f.DryRun, "dry-run", false, "check everything and write nothing")
	c.Flags().StringVar(&f.json, "json", "", "file for the report; - is standard output")
	return c
}

func (a *app) convert(ctx context.Context, args []string, f convertFlags) error {
	if len(args) != 2 {
		return usagef("phalanx convert: found %s, expected FROM and TO, as in `phalanx convert GLM-4.5-Air out/glm`", plural(len(args), "argument"))
	}
	var err error
	if f.ShardBytes, err = sizeOf(f.shard); err != nil {
		return usagef("--max-shard-size: %v", err)
	}
	j, err := telemetry.OpenJSON(f.json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	r, err := convert.Convert(ctx, args[0], args[1], f.Options)
	if err != nil {
		return err
	}
	if f.json != "-" {
		a.printConversion(r)
	}
	if err := j.Write(r); err != nil {
		return err
	}
	return j.Close()
}

func (a *app) printConversion(r *convert.Report) {
	a.printf("%-10s %s: %s, %s\n", r.Direction, r.From, r.Architecture, strings.Join(r.Read, " and "))
	for _, line := range r.Model {
		a.printf("model      %s\n", line)
	}
	a.printf("parameters %d, MTP layers %d\n", r.Parameters, r.MTPLayers)
	if len(r.Ignored) > 0 {
		a.printf("ignored    %s\n", strings.Join(r.Ignored, ", "))
	}
	for _, part := range []struct {
		word string
		of   []convert.Left
	}{{"checked", r.Checked}, {"dropped", r.Dropped}, {"added", r.Added}} {
		for _, l := range part.of {
			a.printf("%-10s %s: %s\n", part.word, l.Name, l.Why)
		}
	}
	for _, n := range r.Notes {
		a.printf("note       %s\n", n)
	}
	verb := "wrote"
	if r.DryRun {
		verb = "would write"
	}
	a.printf("%-10s %s: %s of %s, %s%s\n", verb, r.To, plural(r.Tensors, "tensor"), strings.Join(r.Wrote, " and "), bytesText(r.Bytes), inFiles(len(r.Files)))
}

func inFiles(n int) string {
	if n == 0 {
		return ""
	}
	return ", " + plural(n, "file")
}

// sizeOf reads bytes with a unit: decimal (KB, MB, GB) or binary (KiB, MiB, GiB).
func sizeOf(text string) (int64, error) {
	units := map[string]int64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
	number := strings.TrimRight(text, "KMGTiB ")
	unit, known := units[strings.TrimSpace(strings.TrimPrefix(text, number))]
	n := int64(0)
	if _, err := fmt.Sscanf(number+"\n", "%d\n", &n); err != nil || !known || n < 1 || n > (1<<62)/unit {
		return 0, fmt.Errorf("found %q, expected a size from 1 on, as 500MB or 5GB", text)
	}
	return n * unit, nil
}
