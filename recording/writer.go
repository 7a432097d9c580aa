package recording

import (
	"bufio"
	"sync"

	"phalanx/internal/disk"
)

// queueMax bounds the bytes of a rank that wait to be written: a step of a small model, or a pause of the disk. Beyond it the
// rank waits. As many are being written meanwhile.
const queueMax = 16 << 20

// bufferBytes is what becomes one write: a message of a small model is a few KiB.
const bufferBytes = 1 << 18

// writer appends to a file in the background. What has been given to it reaches the system as soon as the file keeps up.
type writer struct {
	path string
	file disk.OutFile

	mu      sync.Mutex
	change  *sync.Cond
	queue   [][]byte
	bytes   int // in queue
	writing bool
	closing bool
	err     error // the first one; after it nothing is written
	ended   chan struct{}
}

func newWriter(path string, f disk.OutFile) *writer {
	w := &writer{path: path, file: f, ended: make(chan struct{})}
	w.change = sync.NewCond(&w.mu)
	go w.run()
	return w
}

// add appends. The slices must not be changed any more. The error is one of earlier calls too.
func (w *writer) add(parts ...[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.bytes > queueMax && w.err == nil {
		w.change.Wait()
	}
	for _, b := range parts {
		if len(b) > 0 {
			w.queue, w.bytes = append(w.queue, b), w.bytes+len(b)
		}
	}
	w.change.Broadcast()
	return w.err
}

// drain waits until everything is with the system.
func (w *writer) drain() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for (len(w.queue) > 0 || w.writing) && w.err == nil {
		w.change.Wait()
	}
	return w.err
}

// close drains and closes the file.
func (w *writer) close() error {
	w.mu.Lock()
	w.closing = true
	w.change.Broadcast()
	w.mu.Unlock()
	<-w.ended
	return w.err
}

// run is the goroutine that writes.
func (w *writer) run() {
	defer close(w.ended)
	out := bufio.NewWriterSize(w.file, bufferBytes)
	for {
		batch, ok := w.next()
		if !ok {
			break
		}
		var err error
		for _, b := range batch {
			if _, err = out.Write(b); err != nil {
				break
			}
		}
		if err == nil {
			err = out.Flush()
		}
		w.wrote(err)
	}
	if err := w.file.Close(); err != nil {
		w.fail("close", err)
	}
}

// next waits for something to write; false: there will be nothing.
func (w *writer) next() ([][]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 || w.err != nil {
		if w.closing {
			return nil, false
		}
		w.change.Wait()
	}
	batch := w.queue
	w.queue, w.bytes, w.writing = nil, 0, true
	w.change.Broadcast()
	return batch, true
}

func (w *writer) wrote(err error) {
	if err != nil {
		w.fail("write", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
	w.change.Broadcast()
}

func (w *writer) fail(op string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = disk.Failed(w.path, op, 0, err)
	}
	w.change.Broadcast()
}
