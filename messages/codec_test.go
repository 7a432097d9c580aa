package messages

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/tensor"
)

func drawHeader(t *rapid.T) Header {
	u16, u32, u64 := rapid.Uint16(), rapid.Uint32(), rapid.Uint64()
	h := Header{
		Kind: Kind(rapid.Byte().Draw(t, "kind")), Run: u64.Draw(t, "run"), Topology: u32.Draw(t, "topology"),
		Build: u64.Draw(t, "build"), Src: u16.Draw(t, "src"), Dst: u16.Draw(t, "dst"),
		Incarnation: u32.Draw(t, "incarnation"), Chan: u16.Draw(t, "chan"), Step: u32.Draw(t, "step"),
		Microbatch: u16.Draw(t, "mb"), Op: u16.Draw(t, "op"), Layer: u16.Draw(t, "layer"), Phase: u16.Draw(t, "phase"),
		Chunk: u16.Draw(t, "chunk"), Chunks: u16.Draw(t, "chunks"), Seq: u64.Draw(t, "seq"), Edge: u64.Draw(t, "edge"), Log: u64.Draw(t, "log"),
		DType: tensor.DType(rapid.Byte().Draw(t, "dtype")), NDim: rapid.Byte().Draw(t, "ndim"),
		Len: u32.Draw(t, "len"), PayloadCRC: u32.Draw(t, "crc"),
	}
	for i := range h.Shape {
		h.Shape[i] = u32.Draw(t, "shape")
	}
	return h
}

func TestDecodeUndoesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		var b, again [HeaderSize]byte
		h.Encode(b[:])
		got, err := Decode(b[:])
		require.NoError(t, err)
		require.Equal(t, h, got)
		got.Encode(again[:])
		require.Equal(t, b, again)
	})
}

// sample is a header with a different value in every byte of every field.
func sample() Header {
	return Header{
		Kind: Data, Run: 0x0102030405060708, Topology: 0x11121314, Build: 0x2122232425262728, Src: 0x3132, Dst: 0x4142,
		Incarnation: 0x51525354, Chan: 0x6162, Step: 0x71727374, Microbatch: 0x8182, Op: 0x9192, Layer: 0xa1a2,
		Phase: 0xb1b2, Chunk: 0xc1c2, Chunks: 0xd1d2, Seq: 0xe1e2e3e4e5e6e7e8, Edge: 0xf1f2f3f4f5f6f7f8, Log: 0x2a3a4a5a6a7a8a9a,
		DType: tensor.F32, NDim: 4, Shape: [4]uint32{0x0a0b0c0d, 0x1a1b1c1d, 0x2a2b2c2d, 0x3a3b3c3d},
	}
}

// TestLayout pins the bytes: another machine, or a later version, must read what this one wrote.
func TestLayout(t *testing.T) {
	h := sample()
	h.Seal([]byte("123456789"))
	var b [HeaderSize]byte
	h.Encode(b[:])
	want := []byte{
		0x50, 0x78, 2, 1,
		8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
		0x32, 0x31, 0x42, 0x41, 0x54, 0x53, 0x52, 0x51, 0x62, 0x61, 0x74, 0x73, 0x72, 0x71, 0x82, 0x81,
		0x92, 0x91, 0xa2, 0xa1, 0xb2, 0xb1, 0xc2, 0xc1, 0xd2, 0xd1,
		0xe8, 0xe7, 0xe6, 0xe5, 0xe4, 0xe3, 0xe2, 0xe1, 0xf8, 0xf7, 0xf6, 0xf5, 0xf4, 0xf3, 0xf2, 0xf1,
		1, 4, 0x0d, 0x0c, 0x0b, 0x0a, 0x1d, 0x1c, 0x1b, 0x1a, 0x2d, 0x2c, 0x2b, 0x2a, 0x3d, 0x3c, 0x3b, 0x3a,
		0x9a, 0x8a, 0x7a, 0x6a, 0x5a, 0x4a, 0x3a, 0x2a,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // spare
		9, 0, 0, 0,
		0x83, 0x92, 0x06, 0xe3, // CRC-32C of "123456789" is the well-known check value 0xe3069283
	}
	require.Equal(t, want, b[:124])
	require.Zero(t, HeaderSize%32)
}

// TestEverySingleBitFlipIsSeen flips each bit of header and payload in turn.
func TestEverySingleBitFlipIsSeen(t *testing.T) {
	h, payload := sample(), bytes.Repeat([]byte{0, 0xff, 0x5a}, 100)
	h.Seal(payload)
	frame := make([]byte, HeaderSize+len(payload))
	h.Encode(frame)
	copy(frame[HeaderSize:], payload)
	for bit := range len(frame) * 8 {
		frame[bit/8] ^= 1 << (bit % 8)
		_, _, err := DecodeFrame(frame)
		require.Error(t, err, "bit %d", bit)
		want := ErrHeaderCRC
		switch {
		case bit < 16:
			want = ErrMagic
		case bit < 24:
			want = ErrVersion
		case bit >= HeaderSize*8:
			want = ErrPayloadCRC
		}
		require.ErrorIs(t, err, want, "bit %d", bit)
		frame[bit/8] ^= 1 << (bit % 8)
	}
	got, p, err := DecodeFrame(frame)
	require.NoError(t, err)
	require.Equal(t, h, got)
	require.Equal(t, payload, p)
}

func TestErrorsSayFoundAndExpected(t *testing.T) {
	h := sample()
	h.Seal([]byte{1, 2, 3})
	frame := make([]byte, HeaderSize+3)
	h.Encode(frame)
	copy(frame[HeaderSize:], []byte{1, 2, 3})

	_, err := Decode(frame[:127])
	require.EqualError(t, err, "too short: found 127 bytes, expected at least 128")
	var c *CodecError
	require.True(t, errors.As(err, &c))
	require.ErrorIs(t, err, ErrShort)

	_, _, err = DecodeFrame(frame[:HeaderSize+2])
	require.EqualError(t, err, "length of the payload: found 2 bytes, expected 3")

	other := append([]byte(nil), frame...)
	other[2] = 9
	_, err = Decode(other)
	require.EqualError(t, err, "another version of the header: found 9, expected 2: run the same build everywhere")

	other = append([]byte(nil), frame...)
	other[HeaderSize+2] = 0
	_, _, err = DecodeFrame(other)
	require.ErrorContains(t, err, "payload checksum: found 0x")
}

func TestLine(t *testing.T) {
	h := Header{Kind: Data, Src: 1, Dst: 2, Chan: 0x301, Step: 3, Op: 0x1406, Layer: NoLayer, Phase: 1, Seq: 17, Chunks: 4,
		Edge: 66, DType: tensor.F32, Shape: [4]uint32{1024}, Len: 4096}
	require.Equal(t, "data 1→2 chan 0x0301 step 3 mb 0 op 0x1406 phase 0x0001 seq 17 chunk 0/4 edge 66 F32[1024] 4096 B",
		h.String())
	h.Layer, h.NDim, h.Shape = 5, 2, [4]uint32{3, 4}
	line := h.Line(Namer{Chan: func(uint16) string { return "tp/stage" }, Op: func(uint16) string { return "all_reduce" }})
	require.Equal(t, "data 1→2 chan tp/stage step 3 mb 0 op all_reduce layer 5 phase 0x0001 seq 17 chunk 0/4 edge 66 F32[3,4] 4096 B",
		line)
	require.Equal(t, "kind(9)", Kind(9).String())
}

func FuzzDecode(f *testing.F) {
	h := sample()
	h.Seal([]byte("payload"))
	frame := make([]byte, HeaderSize+7)
	h.Encode(frame)
	copy(frame[HeaderSize:], "payload")
	f.Add(frame)
	f.Add(frame[:HeaderSize])
	f.Add(frame[:40])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, err := DecodeFrame(b)
		if err != nil {
			var c *CodecError
			require.True(t, errors.As(err, &c))
			return
		}
		again := make([]byte, HeaderSize)
		h.Encode(again)
		require.Equal(t, b, append(again, payload...))
		require.NotEmpty(t, h.String())
	})
}

func BenchmarkChecksum256KiB(b *testing.B) {
	p := make([]byte, 256<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		Checksum(p)
	}
}

func BenchmarkEncodeDecode(b *testing.B) {
	h := sample()
	buf := make([]byte, HeaderSize)
	for b.Loop() {
		h.Encode(buf)
		if _, err := Decode(buf); err != nil {
			b.Fatal(err)
		}
	}
}
