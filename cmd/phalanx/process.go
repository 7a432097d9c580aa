package main

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"phalanx/run"
)

// The verbs that processes of a run are started with. They are not for people, so --help does not list them.

// self is how this program was started, which is how its processes are.
func self() []string {
	if path, err := exec.LookPath(os.Args[0]); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return []string{path}
		}
	}
	return nil // by its file
}

// ask is a channel with something in it whenever the user wants to know who waits for whom: at SIGQUIT, Ctrl-\ on most
// terminals. end gives the signal back.
func ask() (asked <-chan struct{}, end func()) {
	signals, out, over := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGQUIT)
	go func() {
		for {
			select {
			case <-signals:
				select {
				case out <- struct{}{}:
				default:
				}
			case <-over:
				return
			}
		}
	}()
	return out, func() { signal.Stop(signals); close(over) }
}

// processVerb is a verb with the folder of a run.
func (a *app) processVerb(use, short string, work func(ctx context.Context, dir string, log *zap.Logger) error) *cobra.Command {
	return &cobra.Command{Use: use + " DIR", Short: short, Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return work(c.Context(), args[0], a.logger(nil)) }}
}

func (a *app) workerVerb() *cobra.Command {
	var o run.WorkerOptions
	c := a.processVerb("worker", "is a process of a run, with some of its ranks", func(ctx context.Context, dir string, log *zap.Logger) error {
		o.Dir, o.Logger, o.Exit = dir, log, os.Exit
		return run.Work(ctx, o)
	})
	c.Flags().IntVar(&o.Worker, "worker", 0, "which one")
	c.Flags().Uint32Var(&o.Incarnation, "incarnation", 1, "how many there have been of it")
	c.Flags().TextVar(&o.End, "end", &o.End, "where the run is to end, as ROUND:STEPS:decided or ROUND:STEPS:proposed")
	return c
}

func (a *app) supervisorVerb() *cobra.Command {
	return a.numberedVerb("supervisor", "watches over the workers of a run", run.Supervise)
}

func (a *app) natsServerVerb() *cobra.Command {
	return a.numberedVerb("nats-server", "is a NATS server of a run", run.ServeNATS)
}

// numberedVerb is the verb of one of several processes that do the same.
func (a *app) numberedVerb(use, short string, work func(ctx context.Context, dir string, index int, log *zap.Logger) error) *cobra.Command {
	var index int
	c := a.processVerb(use, short, func(ctx context.Context, dir string, log *zap.Logger) error { return work(ctx, dir, index, log) })
	c.Flags().IntVar(&index, "index", 0, "which one")
	return c
}
