package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// claimFile is held by the run that saves into a folder. It says which process that is.
const claimFile = ".in-use"

// claim takes a folder for checkpoints, so that no other run saves into it, and makes it if it is not there. The system gives
// it back when the process dies. An error says what is wrong with the folder, before a step has been computed for nothing.
func claim(dir string) (release func(), err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is a file, expected a folder for checkpoints; name another, or move the file away", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder for checkpoints: %w", err)
	}
	path := filepath.Join(dir, claimFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot write into the folder for checkpoints: %w", err)
	}
	if err := hold(f); err != nil {
		who := holder(path)
		return nil, errors.Join(fmt.Errorf("%s is in use by another run (%s), which saves there too; wait for its end, or set another folder", dir, who), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintf(f, "process %d\n", os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write into the folder for checkpoints: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil // what is in it is for people
}

// holder is what a claim says of who has made it.
func holder(path string) string {
	b, err := os.ReadFile(path)
	if who := strings.TrimSpace(string(b)); err == nil && who != "" {
		return who
	}
	return "it has not said which process it is"
}
