package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"phalanx/supervise"
	"phalanx/transport/natslink"
	"phalanx/transport/natslink/plane"
)

// ServeNATS is one of the NATS servers of a run, until the context ends.
func ServeNATS(ctx context.Context, dir string, index int, log *zap.Logger) error {
	sp, s, err := readSpawn(dir)
	if err != nil {
		return err
	}
	if err := sp.one("--index", index, len(sp.Servers)); err != nil {
		return err
	}
	mine := sp.Servers[index]
	o := natslink.ServerOptions{Name: mine.Name, URL: mine.URL, StoreDir: filepath.Join(dir, mine.Name), Ranks: s.Sizes().World() + 1,
		PieceBytes: s.Transport.PieceBytes, Logger: log}
	if mine.Cluster != "" {
		o.Cluster, o.ClusterURL = sp.Run, mine.Cluster
		for _, other := range sp.Servers {
			o.Routes = append(o.Routes, other.Cluster)
		}
	}
	server, err := natslink.StartServer(o)
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Close()
	return nil
}

// Supervise is one of the supervisors of a run, until it is over.
func Supervise(ctx context.Context, dir string, index int, log *zap.Logger) error {
	sp, s, err := readSpawn(dir)
	if err != nil {
		return err
	}
	if err := sp.one("--index", index, s.Recovery.Supervisors); err != nil {
		return err
	}
	j := &job{s: s, o: Options{Logger: log}}
	name := fmt.Sprintf("supervisor-%d/%d", index+1, os.Getpid())
	p, err := plane.Open(ctx, sp.plane(j, name))
	if err != nil {
		return err
	}
	defer p.Close()
	one, err := supervise.New(p, sp.supervisor(j))
	if err != nil {
		return err
	}
	_, err = one.Run(ctx)
	return err
}
