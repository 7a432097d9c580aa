// Command phalanx trains language models on CPUs with ranks that are actors and exchange tensor shards over NATS.
//
// One file per verb: flags to options, options to package run or bench, results to text. `phalanx --help` lists them.
package main

import "os"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
