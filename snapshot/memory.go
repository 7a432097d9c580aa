package snapshot

import (
	"maps"
	"slices"
	"sync"
)

// Memory keeps the snapshots of a rank in memory, for a rank whose lives are all in one process. It may be used from several
// goroutines. The zero value is that of a rank at the beginning of its run.
type Memory struct {
	Rank int // for errors

	mu        sync.Mutex
	committed uint32
	saved     map[uint32][][]byte
}

// Begin is that of Store: the committed step, the sections of its snapshot (nil: step 0), the steps of all snapshots.
func (m *Memory) Begin() (step uint32, sections [][]byte, durable []uint32, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	durable = slices.Sorted(maps.Keys(m.saved))
	if m.committed > 0 {
		sections, err = m.sections(m.committed)
	}
	return m.committed, sections, durable, err
}

// Sections are those of the snapshot of a step. The error is a *MissingError.
func (m *Memory) Sections(step uint32) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sections(step)
}

func (m *Memory) sections(step uint32) ([][]byte, error) {
	if s, ok := m.saved[step]; ok {
		return s, nil
	}
	return nil, &MissingError{Dir: "the memory of this process", Rank: m.Rank, Step: step}
}

// Save keeps the sections themselves, which must not be changed any more. They are as durable at once as they will ever be.
func (m *Memory) Save(step uint32, sections [][]byte, _ func(error)) (durable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saved == nil {
		m.saved = map[uint32][][]byte{}
	}
	m.saved[step] = sections
	return true
}

// Commit notes that all ranks can go back to a step, and forgets earlier ones.
func (m *Memory) Commit(step uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.committed = step
	maps.DeleteFunc(m.saved, func(s uint32, _ [][]byte) bool { return s < step })
	return nil
}
