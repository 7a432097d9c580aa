package messages

import "hash/crc32"

// A CRC is the remainder of a polynomial over GF(2). Bytes that follow multiply what came before by x^8 each, so two
// checksums are joined by a product of remainders, without the bytes. Bit 31 of a word is x^0, as in package hash/crc32.

// one is the polynomial 1.
const one = uint32(1) << 31

// squares[k] is x^(2^k).
var squares = func() (s [67]uint32) {
	s[0] = one >> 1
	for k := 1; k < len(s); k++ {
		s[k] = product(s[k-1], s[k-1])
	}
	return s
}()

// product is a·b modulo the polynomial of CRC-32C.
func product(a, b uint32) (p uint32) {
	for ; a != 0; a <<= 1 {
		if a&one != 0 {
			p ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crc32.Castagnoli
		}
	}
	return p
}

// shifted is the remainder of a checksum's polynomial times x^(8n).
func shifted(crc uint32, n int) uint32 {
	for k := 3; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			crc = product(squares[k], crc)
		}
	}
	return crc
}
