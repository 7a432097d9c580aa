//go:build !amd64

package kernel

// Without assembly every path is the portable one, which gives the same bits.
var avx2Engine, avx512Engine = portable32, portable32
