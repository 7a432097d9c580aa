package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// WeightsSHA256 is the hash that says whether two sets of weights are the same bits, in hexadecimal. It is SHA-256
// over the tensors in ascending name (byte order), each framed as
//
//	name bytes, 0, dtype as safetensors writes it ("F32"), 0, shape in decimal joined by "," ("" for a scalar), 0, data
//
// with data row-major and little-endian. The tensors must be the unsharded parameters and expert biases under their
// Hugging Face names, so the hash is the same for every layout that gives the same bits. Tensors that could not be
// written (a name twice, a shape that does not fit) are a programmer error.
func WeightsSHA256(tensors []Tensor) string {
	order, err := sorted(tensors)
	if err != nil {
		panic(err)
	}
	h := sha256.New()
	for _, t := range order {
		io.WriteString(h, t.Name+"\x00"+t.DType.String()+"\x00"+joined(t.Shape)+"\x00") // a hash never fails
		h.Write(t.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}
