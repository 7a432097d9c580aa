//go:build !race

package property

// share is the part of the checks that a build runs: all.
const share = 1
