package run

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"phalanx/actors"
	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/data"
	"phalanx/internal/golden"
	"phalanx/model"
	"phalanx/recording"
)

// Exit codes of the program.
const (
	ExitHeld        = 0   // everything held
	ExitFailed      = 1   // the run failed
	ExitBadInput    = 2   // a file, a key or a layout that cannot be taken
	ExitNotHeld     = 3   // an expectation does not hold
	ExitRestarts    = 4   // restarts used up
	ExitPoison      = 5   // a rank dies at one point again and again
	ExitInterrupted = 130 // Ctrl-C
)

// ExitCode is the code that an error ends the program with.
func ExitCode(err error) int {
	var problems config.Problems
	var bad *data.Error
	var format *checkpoint.FormatError
	var broken *golden.Error
	var refused *RefusedError
	var weight *model.WeightError
	var cannot *model.RefusedError
	var key *KeyError
	var restart *actors.RestartError
	var verdict *VerdictError
	var replay *ReplayError
	var damage *recording.DamageError
	var lack *recording.LackError
	var tape *recording.FileError
	var folder *FolderError
	switch {
	case err == nil:
		return ExitHeld
	case errors.Is(err, actors.ErrInterrupted), errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.As(err, &verdict):
		return verdict.Code
	case errors.As(err, &restart) && restart.Poison:
		return ExitPoison
	case errors.As(err, &restart):
		return ExitRestarts
	case errors.As(err, &problems), errors.As(err, &bad), errors.As(err, &format), errors.As(err, &broken), errors.As(err, &refused), errors.As(err, &weight), errors.As(err, &cannot), errors.As(err, &key), errors.As(err, &replay), errors.As(err, &damage), errors.As(err, &lack), errors.As(err, &tape), errors.As(err, &folder):
		return ExitBadInput
	}
	return ExitFailed
}

// BuildVersion is the source this program was built from: the module's version and revision, or a hash of nothing
// better than "devel" when it was built outside version control.
var BuildVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version + " " + info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision", "vcs.modified", "GOARCH", "GOAMD64":
			v += " " + s.Key + "=" + s.Value
		}
	}
	return v
})
