package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"phalanx/bench"
	"phalanx/config"
)

func TestZZProf(t *testing.T) {
	runtime.GOMAXPROCS(1)
	cpu := func() time.Duration {
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	one := func(name string, set ...string) {
		o := bench.StepOptions{Steps: 6, Warmup: 1, Threads: 1, Overrides: set}
		s, err := o.Scenario()
		if err != nil {
			t.Fatal(err)
		}
		var from, to time.Duration
		n := 0
		var compute []float64
		f, _ := os.Create("/tmp/prof/" + name)
		_, err = (&app{stderr: os.Stderr}).trainer(context.Background(), s, func(tk bench.Took) {
			n++
			if n == 1 {
				from = cpu()
				pprof.StartCPUProfile(f)
			}
			if n == 7 {
				to = cpu()
				pprof.StopCPUProfile()
			}
			compute = append(compute, tk.ComputeMs)
		})
		f.Close()
		fmt.Printf("%s cpu/step %.1f ms compute %v err %v\n", name, (to-from).Seconds()*1e3/6, compute[1:], err)
		_ = config.Scenario{}
	}
	cp := []string{"model.context_parallel_size=2", "dist.world_size=2", "optimizer.use_distributed_optimizer=true", "transport.kind=direct"}
	for range 2 {
		one("one")
		one("cp2", cp...)
		one("one4", "train.global_batch_size=16")
		one("cp24", append(cp, "train.global_batch_size=16")...)
	}
}
