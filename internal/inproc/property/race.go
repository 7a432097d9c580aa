//go:build race

package property

// share is the part of the checks that a race build runs: it is several times slower, and looks at accesses, not values.
const share = 4
