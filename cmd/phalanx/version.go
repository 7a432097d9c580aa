package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"phalanx/telemetry"
	"phalanx/tensor/kernel"
)

func (a *app) versionVerb() *cobra.Command {
	var json string
	c := &cobra.Command{
		Use:   "version",
		Short: "prints version, Go, architecture and kernel path",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("phalanx version: found %q, expected nothing", args[0])
			}
			return a.version(json)
		},
	}
	c.Flags().StringVar(&json, "json", "", "file for the result; - is standard output")
	return c
}

// versionRecord is what decides which bits two processes compute.
type versionRecord struct {
	Version    string `json:"version"`
	Revision   string `json:"revision,omitempty"`
	Modified   bool   `json:"modified"`
	Go         string `json:"go"`
	GOOS       string `json:"goos"`
	GOARCH     string `json:"goarch"`
	GOAMD64    string `json:"goamd64,omitempty"`
	Kernel     string `json:"kernel"`
	KernelBest string `json:"kernel_best"`
}

func (a *app) version(json string) error {
	v := thisVersion()
	j, err := telemetry.OpenJSON(json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	if err := j.Write(v); err != nil {
		return err
	}
	if json != "-" {
		a.printVersion(v)
	}
	return j.Close()
}

func thisVersion() versionRecord {
	v := versionRecord{Version: "unknown", Go: runtime.Version(), GOOS: runtime.GOOS, GOARCH: runtime.GOARCH,
		Kernel: kernel.Active().String(), KernelBest: kernel.Best().String()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "GOAMD64":
			v.GOAMD64 = s.Value
		}
	}
	return v
}

func (a *app) printVersion(v versionRecord) {
	a.printf("phalanx  %s", v.Version)
	if v.Revision != "" {
		a.printf(" revision %s", v.Revision)
	}
	if v.Modified {
		a.printf(" with changes")
	}
	a.printf("\ngo       %s %s/%s\n", v.Go, v.GOOS, v.GOARCH)
	if v.GOAMD64 != "" {
		a.printf("GOAMD64  %s\n", v.GOAMD64)
	}
	a.printf("kernel   %s (best of this CPU: %s)\n", v.Kernel, v.KernelBest)
}
