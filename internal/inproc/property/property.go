// Package property runs property tests that take the same time and do the same every time.
package property

import (
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// seed is where every property starts; any number but 0, which means a random one.
const seed = "1"

// Check is rapid.Check with a number of checks that the property's cost allows, from a fixed seed. The flags
// -rapid.checks and -rapid.seed, and their environment variables, are obeyed where given. No fail file is written: the
// seed brings a failure back. A race build runs a quarter of the checks.
func Check(t *testing.T, checks int, holds func(*rapid.T)) {
	t.Helper()
	defer with(t, "rapid.checks", strconv.Itoa((checks+share-1)/share))()
	defer with(t, "rapid.seed", seed)()
	defer with(t, "rapid.nofailfile", "true")()
	rapid.Check(t, holds)
}

// with sets a flag that nobody has set, until the function it returns is called.
func with(t *testing.T, name, v string) (restore func()) {
	t.Helper()
	f := flag.Lookup(name)
	if f.Value.String() != f.DefValue || os.Getenv(variable(name)) != "" {
		return func() {}
	}
	old := f.Value.String()
	set := func(v string) {
		if err := flag.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	set(v)
	return func() { set(old) }
}

// variable is the environment variable of a flag: rapid.seed is RAPID_SEED.
func variable(flag string) string { return strings.ToUpper(strings.ReplaceAll(flag, ".", "_")) }
