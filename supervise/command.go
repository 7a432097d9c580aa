package supervise

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"phalanx/transport/natslink/plane"
)

// WordsVariable is the environment variable that tells a process where to leave its last words.
const WordsVariable = "PHALANX_LAST_WORDS"

const (
	wordsBytesMax = 64 << 10
	pipeDelay     = time.Second // for what a dead process has written last
)

// Command is a process to start: in a process group of its own, and, on Linux, ended by the kernel when this process ends.
type Command struct {
	Path           string
	Args           []string // without the program's name
	Env            []string // "KEY=value", besides those of this process
	Dir            string
	Stdout, Stderr io.Writer
	Temp           string // folder for the file with its last words; "": the system's
}

// Start starts it.
func (c Command) Start() (Process, error) {
	f, err := os.CreateTemp(c.Temp, "phalanx-words-*")
	if err != nil {
		return nil, fmt.Errorf("supervise: no place for last words: %w", err)
	}
	f.Close()
	words := f.Name()
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(append(os.Environ(), c.Env...), WordsVariable+"="+words)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.Dir, c.Stdout, c.Stderr, pipeDelay
	cmd.SysProcAttr = attributes()
	p := &process{cmd: cmd, words: words, exit: make(chan plane.Exit, 1)}
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		os.Remove(words)
		return nil, fmt.Errorf("supervise: %w", err)
	}
	return p, nil
}

type process struct {
	cmd   *exec.Cmd
	words string
	exit  chan plane.Exit
}

// live starts the process and waits for it, on one thread that is kept for it: the kernel ends a child with the thread that
// started it, not with the process, and Go ends threads whose goroutine ends while it holds them.
func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // else this very thread would be ended, and others of its children with it
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.exit <- p.wait()
	}
}

// PID implements Process.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Kill implements Process.
func (p *process) Kill() error { return killGroup(p.cmd.Process) }

// Wait implements Process.
func (p *process) Wait() plane.Exit { return <-p.exit }

func (p *process) wait() plane.Exit {
	err := p.cmd.Wait()
	e := plane.Exit{PID: p.PID(), AtNs: time.Now().UnixNano()}
	e.Code, e.Signal = ending(p.cmd.ProcessState)
	e.Words = readWords(p.words)
	os.Remove(p.words)
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) && e.Words == nil {
		e.Words = &plane.Words{Cause: plane.Exited, Text: err.Error()}
	}
	return e
}

// readWords reads what a process has left; nil: nothing that can be read, since it was killed.
func readWords(path string) *plane.Words {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, wordsBytesMax)).ReadBytes('\n')
	var w plane.Words
	if err != nil || json.Unmarshal(line, &w) != nil {
		return nil
	}
	return &w
}

// LastWords leaves word why this process is about to end, for the agent that started it. Without an agent it does nothing.
func LastWords(w plane.Words) error {
	path := os.Getenv(WordsVariable)
	if path == "" {
		return nil
	}
	line, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("supervise: last words: %w", err)
	}
	if len(line) >= wordsBytesMax {
		w.Text = w.Text[:min(len(w.Text), wordsTextMax)] + "…"
		if line, err = json.Marshal(w); err != nil {
			return fmt.Errorf("supervise: last words: %w", err)
		}
	}
	if err := os.WriteFile(path, append(line, '\n'), 0o600); err != nil {
		return fmt.Errorf("supervise: last words: %w", err)
	}
	return nil
}

// wordsTextMax is what is left of a text that is too long: a stack of a page, escaped.
const wordsTextMax = 8 << 10
