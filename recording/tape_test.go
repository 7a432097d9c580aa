package recording

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/internal/disk"
	"phalanx/internal/disk/faulty"
	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/snapshot"
	"phalanx/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const build = 0xb1d

// from is a message of a peer, and to one for it. What a link and a life put into a header differs with every call.
var way uint64

func from(peer uint16, log uint64, step uint32) messages.Header {
	way++
	return messages.Header{Kind: messages.Data, Run: way, Build: way, Src: peer, Dst: 1, Incarnation: uint32(way), Chan: 0x0201, Step: step, Op: 5,
		Layer: messages.NoLayer, Seq: 10 * log, Edge: way, Log: log, DType: tensor.F32, NDim: 1, Chunk: 7, Chunks: 9}
}

func to(peer uint16, log uint64, step uint32) messages.Header {
	h := from(peer, log, step)
	h.Src, h.Dst = 1, peer
	return h
}

func body(peer uint16, log uint64) []byte { return fmt.Appendf(nil, "payload %d of %d", log, peer) }

func created(t *testing.T, d snapshot.Disk) (dir string, r *Rank) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "recording")
	require.NoError(t, Create(disk.OS{}, dir, Run{Name: "x", World: 3}, []byte("name: x\n")))
	r = New(dir, Options{Rank: 1, World: 3, Build: build, Disk: d, Alarm: func(err error) { t.Log(err) }})
	t.Cleanup(r.Close)
	return dir, r
}

func opened(t *testing.T, dir string) *Tape {
	t.Helper()
	tape, err := Open(dir, Run{}, 1, build)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tape.Close()) })
	return tape
}

var edge = recovery.Edge{Peer: 2, Chan: 0x0201}

// A life may have been further than where its run, which was asked to stop, has ended. What it has sent there does not count.
func TestTapeOfALifeBeyondTheEnd(t *testing.T) {
	dir, r := created(t, nil)
	r.Life(1, at(0))
	for step := range uint32(4) {
		r.Begun(step)
		r.Sent(to(0, uint64(step), step), body(0, uint64(step)), uint64(step))
	}
	r.Close()
	r = New(dir, Options{Rank: 1, World: 3, Build: build, Alarm: func(err error) { t.Error(err) }})
	r.Life(2, at(1))
	r.Begun(1)
	r.Sent(to(0, 1, 1), body(0, 1), 1)
	r.Begun(2)
	r.Done()
	r.Close()
	tape := opened(t, dir)
	require.Len(t, tape.Lives, 2)
	require.True(t, tape.Done)
	require.EqualValues(t, 2, tape.Begun)
	require.Equal(t, map[recovery.Edge]uint64{{Peer: 0, Chan: 0x0201}: 2}, tape.SentUntil())
}

// What one life has recorded is there again, without what belongs to the way of a message.
func TestTapeHasWhatWasRecorded(t *testing.T) {
	dir, r := created(t, nil)
	r.Life(1, at(0))
	r.Begun(0)
	for log := range uint64(5) {
		r.Received(from(2, log, uint32(log)), body(2, log))
		r.Sent(to(0, log, 3), body(0, log), 100+log)
	}
	r.Received(from(0, 0, 0), nil)
	r.Sent(to(3, 0, 0), body(3, 0), 0) // to the collector of reports, which is no rank
	r.Snapshot(2, snapshot.State{Local: []byte("local"), At: recovery.State{Step: 2}})
	r.Begun(4)
	sum := sha256.Sum256([]byte("weights"))
	r.Weights(sum)
	r.Done()
	r.Close()
	r.Begun(9) // comes too late

	tape := opened(t, dir)
	require.Equal(t, []LifeOf{{Incarnation: 1, Step: 0, Records: 15, Begun: 4}}, tape.Lives)
	require.True(t, tape.Done)
	require.EqualValues(t, 4, tape.Begun)
	require.Equal(t, &sum, tape.Weights)
	require.Nil(t, tape.Conflict)
	require.Empty(t, tape.Damage)
	require.Equal(t, []uint32{2}, tape.Snapshots.List())
	for log := range uint64(5) {
		h, payload, ok, err := tape.Received(edge, log)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, body(2, log), payload)
		want := messages.Header{Kind: messages.Data, Src: 2, Dst: 1, Chan: 0x0201, Step: uint32(log), Op: 5, Layer: messages.NoLayer, Seq: 10 * log, Log: log,
			DType: tensor.F32, NDim: 1, Chunks: 1, Len: uint32(len(payload)), PayloadCRC: messages.Checksum(payload)}
		require.Equal(t, want, h)
	}
	_, payload, ok, err := tape.Received(recovery.Edge{Peer: 0, Chan: 0x0201}, 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, payload)
	_, _, ok, err = tape.Received(edge, 5)
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, map[recovery.Edge]uint64{{Peer: 0, Chan: 0x0201}: 105}, tape.SentUntil())
	h, ok, err := tape.Sent(recovery.Edge{Peer: 0, Chan: 0x0201}, 103)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Canonical(to(0, 3, 3), body(0, 3), 103), h)

	st, err := os.Stat(filepath.Join(dir, "rank-00001.inc-0000000001.recording"))
	require.NoError(t, err)
	sections := snapshot.State{Local: []byte("local"), At: recovery.State{Step: 2}}.Sections()
	require.Equal(t, st.Size()+int64(len(sections[0])+len(sections[1])+len(sections[2])), r.Stats().Bytes)
}

// A life that was killed ends anywhere; whatever is whole before is there, and a later life goes on.
func TestTornLives(t *testing.T) {
	dir, r := created(t, nil)
	r.Life(1, at(0))
	for log := range uint64(3) {
		r.Received(from(2, log, 0), body(2, log))
	}
	r.Close()
	path := filepath.Join(dir, "rank-00001.inc-0000000001.recording")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	record := 1 + messages.HeaderSize + len(body(2, 0))
	require.Len(t, whole, headSize+3*record)
	for n := range len(whole) {
		require.NoError(t, os.WriteFile(path, whole[:n], 0o600))
		tape, err := Open(dir, Run{}, 1, build)
		require.NoError(t, err)
		records := max(0, n-headSize) / record
		require.Equal(t, records, tape.Lives[0].Records)
		require.Equal(t, n < headSize || n != headSize+records*record, tape.Lives[0].Torn, "cut to %d bytes", n)
		require.Empty(t, tape.Damage)
		for log := range uint64(3) {
			_, _, ok, err := tape.Received(edge, log)
			require.NoError(t, err)
			require.Equal(t, int(log) < records, ok)
		}
		require.NoError(t, tape.Close())
	}
	r2 := New(dir, Options{Rank: 1, World: 3, Build: build})
	r2.Life(2, at(1))
	r2.Received(from(2, 2, 0), body(2, 2))
	r2.Received(from(2, 3, 1), body(2, 3))
	r2.Close()
	tape := opened(t, dir)
	require.Equal(t, []LifeOf{{Incarnation: 1, Records: 2, Torn: true}, {Incarnation: 2, Step: 1, Records: 2, Begun: 1}}, tape.Lives)
	for log := range uint64(4) {
		_, payload, ok, err := tape.Received(edge, log)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, body(2, log), payload)
	}
}

// What was recorded reaches the disk soon by itself: a process may be killed while it waits.
func TestRecordsAreWrittenSoon(t *testing.T) {
	dir, r := created(t, nil)
	r.Life(1, at(0))
	for log := range uint64(3) {
		r.Received(from(2, log, 0), body(2, log))
		require.Eventually(t, func() bool {
			_, _, ok, err := opened(t, dir).Received(edge, log)
			return ok && err == nil
		}, 20*time.Second, 5*time.Millisecond)
	}
}

// Two lives that have recorded one message differently are found, with the message and both checksums.
func TestLivesMustAgree(t *testing.T) {
	dir, r := created(t, nil)
	r.Life(1, at(0))
	r.Sent(to(2, 0, 0), []byte("a"), 7)
	r.Sent(to(2, 0, 0), []byte("b"), 8)
	r.Life(2, at(0))
	r.Sent(to(2, 0, 0), []byte("a"), 7)
	r.Sent(to(2, 0, 0), []byte("c"), 8)
	r.Close()
	c := opened(t, dir).Conflict
	require.NotNil(t, c)
	require.True(t, c.Sent)
	require.Equal(t, [2]uint32{1, 2}, c.Lives)
	require.Equal(t, messages.Checksum([]byte("b")), c.First.PayloadCRC)
	require.Equal(t, messages.Checksum([]byte("c")), c.Second.PayloadCRC)
	require.ErrorContains(t, c, "rank 1 has sent message 8 of edge 2/0x0201 twice: incarnation 1 with crc "+
		fmt.Sprintf("%08x", messages.Checksum([]byte("b"))))
}

// Every flipped bit of a file is seen: in a payload when it is read, and with the message; in a header or another record when the
// file is opened. Another life's whole record of the message serves.
func TestDamageIsSeen(t *testing.T) {
	dir, r := created(t, nil)
	r.Life(1, at(0))
	r.Begun(3)
	r.Received(from(2, 0, 0), body(2, 0))
	r.Sent(to(2, 0, 0), body(2, 0), 0)
	r.Weights([32]byte{1})
	r.Done()
	r.Close()
	path := filepath.Join(dir, "rank-00001.inc-0000000001.recording")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	payloadAt := headSize + 9 + 1 + messages.HeaderSize
	payload := len(body(2, 0))
	for bit := range len(whole) * 8 {
		damaged := append([]byte(nil), whole...)
		damaged[bit/8] ^= 1 << (bit % 8)
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		tape, err := Open(dir, Run{}, 1, build)
		if bit < headSize*8 {
			var f *FileError
			require.ErrorAs(t, err, &f)
			continue
		}
		require.NoError(t, err)
		_, _, ok, err := tape.Received(edge, 0)
		var d *DamageError
		if at := bit / 8; at >= payloadAt && at < payloadAt+payload {
			require.ErrorAs(t, err, &d, "bit %d", bit)
			require.ErrorContains(t, err, "the record at byte 41 is damaged: payload checksum")
			require.ErrorContains(t, err, "it is message 0 of edge 2/0x0201")
			require.False(t, ok)
			require.True(t, tape.Done)
		} else {
			require.Condition(t, func() bool { // the last records are shorter than others: read as one of those, the file is cut off
				return tape.Lives[0].Torn || len(tape.Damage) == 1 && errors.As(tape.Damage[0], &d)
			}, "bit %d", bit)
			require.False(t, tape.Done)
		}
		require.NoError(t, tape.Close())
	}
	damaged := append([]byte(nil), whole...)
	damaged[payloadAt]++
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	second := New(dir, Options{Rank: 1, World: 3, Build: build})
	second.Life(2, at(0))
	second.Received(from(2, 0, 0), body(2, 0))
	second.Close()
	_, got, ok, err := opened(t, dir).Received(edge, 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, body(2, 0), got)
}

// A disk that stands still holds nobody up until a queue is full, and everything is written when it goes on.
func TestSlowDisk(t *testing.T) {
	d := &faulty.Disk{}
	dir, r := created(t, d)
	r.Life(1, at(0))
	goOn := make(chan struct{})
	d.Change(faulty.Faults{Until: goOn})
	payload := make([]byte, 1<<20)
	for log := range uint64(queueMax / len(payload)) {
		r.Received(from(2, log, 0), payload)
	}
	held := make(chan struct{})
	go func() {
		defer close(held)
		for log := range uint64(3 * queueMax / len(payload)) {
			r.Received(from(0, log, 0), payload)
		}
	}()
	select {
	case <-held:
		t.Fatal("the queue has no bound")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	<-held
	r.Close()
	tape := opened(t, dir)
	require.Equal(t, 4*queueMax/len(payload), tape.Lives[0].Records)
	require.False(t, tape.Lives[0].Torn)
}

// When the disk is full the recording of the rank ends, somebody is told once, and nothing else happens.
func TestFullDisk(t *testing.T) {
	d, alarms := &faulty.Disk{}, 0
	dir, _ := created(t, nil)
	r := New(dir, Options{Rank: 1, World: 3, Build: build, Disk: d, Alarm: func(err error) {
		alarms++
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.ErrorContains(t, err, "the recording of rank 1 ends here: cannot write ")
	}})
	r.Life(1, at(0))
	d.Change(faulty.Faults{Full: true})
	for log := range uint64(20) {
		r.Received(from(2, log, 0), make([]byte, 100<<10))
	}
	r.Done()
	r.Close()
	require.Equal(t, 1, alarms)
	require.False(t, opened(t, dir).Done)
}

// A rank that records nothing takes the same calls.
func TestNobodyRecords(t *testing.T) {
	var r *Rank
	r.Life(1, at(0))
	r.Received(from(2, 0, 0), nil)
	r.Sent(to(2, 0, 0), nil, 0)
	r.Snapshot(0, snapshot.State{})
	r.Begun(0)
	r.Weights([32]byte{})
	r.Done()
	r.Close()
}

func TestRunFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	want := Run{Version: 1, Name: "x", World: 4, Build: "0b", Source: "devel", Folder: "scenarios", First: 3}
	require.NoError(t, Create(disk.OS{}, dir, want, []byte("name: x\n")))
	got, err := ReadRun(dir)
	require.NoError(t, err)
	require.Equal(t, want, got)
	r := New(dir, Options{Rank: 1, World: 4})
	r.Life(1, at(0))
	r.Close()
	require.NoError(t, Create(disk.OS{}, dir, want, []byte("name: y\n")), "an earlier recording goes")
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"run.json", "scenario.yaml", "snapshots"}, names)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("mine"), 0o600))
	require.ErrorContains(t, Create(disk.OS{}, dir, want, nil), ": found thesis.txt, expected a folder that is not there, is empty or holds an earlier recording; move it away, or choose another --out")
	_, err = ReadRun(t.TempDir())
	require.ErrorContains(t, err, ": no recording; record one with `phalanx run FILE --out DIR recovery.recording=true`")
	for text, expect := range map[string]string{"{": "unexpected EOF", `{"version":2,"world":1}`: "found version 2 of the format, expected 1",
		`{"version":1}`: "found 0 ranks, 0 steps and 0 rows before, expected at least 1, 0 and 0", `{"versions":1}`: "unknown field"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "run.json"), []byte(text), 0o600))
		_, err := ReadRun(dir)
		require.ErrorContains(t, err, expect)
	}
	_, err = Open(dir, Run{}, 1, 0)
	require.ErrorContains(t, err, "nothing is recorded of rank 1")
}

// TestLayout pins the bytes: a later version must read what this one wrote.
func TestLayout(t *testing.T) {
	b := head{build: 0x0102030405060708, rank: 0x11121314, incarnation: 0x21222324, step: 0x31323334}.encode()
	require.Equal(t, []byte{'P', 'x', 'R', 'c', 1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31}, b[:28])
	require.Len(t, b, headSize)
	require.Equal(t, []byte{0x83, 0x92, 0x06, 0xe3}, guarded('1', []byte("23456789"))[9:]) // the check value of CRC-32C
	require.Equal(t, messages.Checksum(b[:28]), binary.LittleEndian.Uint32(b[28:]))
}

// FuzzScan: whatever a file holds, it is read or refused.
func FuzzScan(f *testing.F) {
	h := Canonical(from(2, 0, 0), []byte("abc"), 0)
	good := append(head{build: build, rank: 1, incarnation: 1}.encode(), frame(received, h)...)
	good = append(good, "abc"...)
	f.Add(append(good, guarded(done, nil)...))
	f.Add(good[:50])
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf(fileFormat, 1, 1)), b, 0o600); err != nil {
			t.Fatal(err)
		}
		tape, err := Open(dir, Run{}, 1, build)
		if err != nil {
			var e *FileError
			require.ErrorAs(t, err, &e)
			return
		}
		for log := range tape.received[edge] {
			_, _, _, _ = tape.Received(edge, log)
		}
		require.NoError(t, tape.Close())
	})
}

// at is the state of a step, nothing in it.
func at(step uint32) snapshot.State { return snapshot.State{At: recovery.State{Step: step}} }
