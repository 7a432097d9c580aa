package snapshot

import (
	"fmt"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/recovery"
)

// State is what a rank needs to go on from the beginning of a step.
type State struct {
	Local  []byte                              // of its model, see model.Env.Local
	Groups map[mesh.Axis]collective.GroupState // of its split axes
	At     recovery.State                      // how far every edge is
}

// Sections are the sections of a file: the local state as it is, the groups (collective.EncodeGroups) and the edges
// (recovery.State.Encode).
func (s State) Sections() [][]byte {
	return [][]byte{s.Local, collective.EncodeGroups(s.Groups), s.At.Encode()}
}

// StateOf is the inverse of Sections. Local is the first section itself.
func StateOf(sections [][]byte) (s State, err error) {
	if len(sections) != 3 {
		return s, fmt.Errorf("found %d sections, expected 3: the local state, the groups, the edges", len(sections))
	}
	s.Local = sections[0]
	if s.Groups, err = collective.DecodeGroups(sections[1]); err != nil {
		return State{}, fmt.Errorf("the groups' section: %w", err)
	}
	if s.At, err = recovery.DecodeState(sections[2]); err != nil {
		return State{}, fmt.Errorf("the edges' section: %w", err)
	}
	return s, nil
}
